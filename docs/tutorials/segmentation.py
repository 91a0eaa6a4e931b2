"""Segmentation with a Hugging Face model.

A SegFormer is trained for mean IoU: cross-entropy plus the Lovász-Softmax loss, then a decision
that is chosen on validation images. The images are drawn by the script and the network is small and
made from a config, so that it runs in seconds and without a download.

Run: python docs/tutorials/segmentation.py
"""

# %%
# Images of coloured boxes under noise. Class 1 is red and large, class 2 green, class 3 blue and so
# small that it has little say in the cross-entropy; mean IoU counts all classes alike.
import torch
import torch.nn.functional as F
from transformers import SegformerConfig, SegformerForSemanticSegmentation

import evalgrad as eg

torch.manual_seed(0)


def draw(count, size=32):
    images, labels = torch.randn(count, 3, size, size), torch.zeros(count, size, size).long()
    for image, label in zip(images, labels, strict=True):
        for box, side in ((1, 16), (2, 8), (3, 3)):
            y, x = torch.randint(size - side, (2,)).tolist()
            label[y : y + side, x : x + side] = box
        image += 1.5 * F.one_hot(label, 4)[..., 1:].movedim(-1, 0)
    return images, labels


images, labels = draw(400)
print(tuple(images.shape), [f"{share:.1%}" for share in labels.flatten().bincount() / 400 / 1024])

# %%
# On your own images you would start from pretrained weights:
#
#     SegformerForSemanticSegmentation.from_pretrained("nvidia/mit-b0", num_labels=4)
#
# Here the network is made from a config, with random weights.
config = SegformerConfig(
    num_labels=4,
    depths=[1, 1, 1, 1],
    hidden_sizes=[16, 24, 32, 48],
    strides=[2, 2, 2, 2],
    decoder_hidden_size=48,
    drop_path_rate=0.0,
    classifier_dropout_prob=0.0,
)
model = SegformerForSemanticSegmentation(config)
print(f"{sum(p.numel() for p in model.parameters()):,} parameters")

# %%
# SegFormer's logits have a lower resolution than its images. The metric is computed on pixels of
# the labels, so interpolate the logits first.


def logits_of(batch):
    logits = model(pixel_values=batch).logits
    return F.interpolate(logits, size=batch.shape[2:], mode="bilinear")


# %%
# The training step: cross-entropy moves every pixel from the start, and the Lovász loss follows the
# mean IoU of the batch.
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=100)
for step in range(100):
    chosen = torch.randint(len(images), (16,))
    logits = logits_of(images[chosen])
    loss = F.cross_entropy(logits, labels[chosen])
    loss = loss + eg.lovasz_softmax_loss(logits, labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 25 == 24:
        print(f"step {step + 1}: loss {loss.item():.3f}")

# %%
# A better decision rule needs no training: `class_offsets` finds offsets for the logits of each
# class that raise the mean IoU of argmax on validation images.
with torch.no_grad():
    (validation, seen), (test, truth) = ((logits_of(x), y) for x, y in (draw(100), draw(100)))
offsets = eg.decisions.class_offsets(validation, seen)


def miou(prediction):
    return eg.metrics.jaccard_index(prediction, truth, num_classes=4).item()


print(f"mean IoU on test images: argmax {miou(test.argmax(1)):.3f}")
print(f"with offsets of the classes {miou((test + offsets.view(-1, 1, 1)).argmax(1)):.3f}")

# %%
# One seed and 100 steps show how, not how much. `evalgrad compare --data` compares the losses on
# your own masks, tuned and with several seeds ([lab.md](../lab.md)); `evalgrad train --model`
# trains a Hugging Face folder ([train.md](../train.md)).
