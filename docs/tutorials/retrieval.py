"""Retrieval from embeddings.

A small network learns embeddings of handwritten digits, such that the nearest neighbours of an
image show the same digit. It is trained on the mean average precision of its own batches, and
measured on images that it has never seen. The page shows how to use the loss, on one seed; it is no
comparison with other losses.

Run: python docs/tutorials/retrieval.py
"""

# %%
import torch
from sklearn.datasets import load_digits

import evalgrad as eg

torch.manual_seed(0)
pixels, digit = (torch.from_numpy(x) for x in load_digits(return_X_y=True))
order = torch.randperm(len(digit))
pixels, digit = pixels[order].float() / 16, digit[order]
train, test = slice(0, 900), slice(900, None)
print(f"{len(digit[train])} images to train on, {len(digit[test])} to test on")

# %%
# `retrieval_lists` turns embeddings into one list per query: similarities to all items, which of
# them have its label, and a mask that leaves out the query itself. All ranking metrics take these.


def quality(embeddings, labels):
    lists, same, others = eg.metrics.retrieval_lists(embeddings, labels)
    found = eg.metrics.map_at_r(lists, same, mask=others)
    first = eg.metrics.hit_rate_at_k(lists, same, mask=others, k=1)
    return f"MAP@R {found:.3f}, precision@1 {first:.3f}"


model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 32))
print("raw pixels:", quality(pixels[test], digit[test]))
with torch.no_grad():
    print("untrained: ", quality(model(pixels[test]), digit[test]))

# %%
# `epsilon` sets how far from its own ranking the loss looks for a worse one, on the scale of the
# similarities. `suggest_epsilon` returns a starting value for the untrained network.
with torch.no_grad():
    lists, same, others = eg.metrics.retrieval_lists(model(pixels[train]), digit[train])
epsilon = eg.suggest_epsilon(lists, same, mask=others)
print(f"epsilon {epsilon:.2g}")

# %%
# Any optimiser and any sampler work; every item of a batch is a query.
loss = eg.RetrievalAveragePrecisionLoss(epsilon=epsilon)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(200):
    chosen = torch.randint(900, (128,))  # of the training images
    value = loss(model(pixels[chosen]), digit[chosen])
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: 1 - MAP of the batch {value.item():.3f}")

# %%
# The gap between the two is overfitting.
with torch.no_grad():
    print("training images:", quality(model(pixels[train]), digit[train]))
    print("test images:    ", quality(model(pixels[test]), digit[test]))

# %%
# [retrieval.md](../retrieval.md) has the options, and the loss inside pytorch-metric-learning.
