"""Train a small network to segment scenes of handwritten digits, on cross-entropy and on the IoU itself, and print the mIoU.

Data: scikit-learn's own digits, several to a 32x32 canvas, with a long tail of classes. Nothing is downloaded. Run by `make demo`.
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import evalgrad as eg
from evalgrad.metrics import jaccard_index

CLASSES, SIZE = 11, 32  # ten digits and the background, class 0


def scenes(count: int, seed: int, test: bool) -> tuple[Tensor, Tensor]:
    """Images (count, 1, 32, 32) and label maps: one to three digits of 12 pixels, digit d+1 rarer than digit d."""
    generator = torch.Generator().manual_seed(seed)
    data = load_digits()
    glyphs = F.interpolate(torch.tensor(data.images, dtype=torch.float32)[:, None] / 16, size=12, mode="bilinear")[:, 0]
    digit = torch.tensor(data.target)
    chance = torch.where((torch.arange(len(digit)) % 3 == 0) == test, 0.78**digit, 0.0)  # every third glyph is kept for testing
    images, labels = torch.zeros(count, 1, SIZE, SIZE), torch.zeros(count, SIZE, SIZE, dtype=torch.long)
    for i in range(count):
        for _ in range(int(torch.randint(1, 4, (), generator=generator))):
            k = int(torch.multinomial(chance, 1, generator=generator))
            top, left = torch.randint(SIZE - 12, (2,), generator=generator).tolist()
            images[i, 0, top : top + 12, left : left + 12] = glyphs[k]
            labels[i, top : top + 12, left : left + 12] = torch.where(glyphs[k] > 0.3, digit[k] + 1, 0)
    return images + 0.1 * torch.randn(images.shape, generator=generator), labels


def network() -> nn.Module:
    """Space-to-depth, a few dilated convolutions, and back."""
    layers: list[nn.Module] = [nn.PixelUnshuffle(2), nn.Conv2d(4, 32, 3, padding=1), nn.ReLU()]
    for dilation in (1, 2, 4, 2):
        layers += [nn.Conv2d(32, 32, 3, padding=dilation, dilation=dilation), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(32, 4 * CLASSES, 1), nn.PixelShuffle(2))


def miou(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    model.eval()
    with torch.no_grad():
        predictions = torch.cat([model(batch).argmax(1) for batch in images.split(100)])
    return 100 * jaccard_index(predictions, labels, num_classes=CLASSES).item()


def train(loss, images: Tensor, labels: Tensor, steps: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=max(steps, 1))
    model.train()
    for _ in range(steps):
        batch = torch.randint(len(images), (16,))
        optimizer.zero_grad()
        loss(model(images[batch]), labels[batch]).backward()
        optimizer.step()
        schedule.step()
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200, help="training steps per loss and seed (200)")
    parser.add_argument("--seeds", type=int, default=2, help="number of seeds (2)")
    options = parser.parse_args()
    images, labels = scenes(1000, seed=0, test=False)
    test_images, test_labels = scenes(300, seed=1, test=True)
    print(f"mIoU (%) on 300 unseen digit scenes, {options.steps} steps of batch 16, same learning rate, not tuned:")
    for name, loss in (("cross-entropy", F.cross_entropy), ("Lovász-Softmax", eg.lovasz_softmax_loss)):
        for seed in range(options.seeds):
            before = miou(train(loss, images, labels, 0, seed), test_images, test_labels)
            print(f"  {name:15} seed {seed}: {before:5.1f} before, ", end="", flush=True)
            after = miou(train(loss, images, labels, options.steps, seed), test_images, test_labels)
            print(f"{after:5.1f} after")


if __name__ == "__main__":
    main()
