"""Rare positives under a precision constraint.

One digit in twenty has to be found, and nine alarms in ten must be right: the recall at a precision
of 0.9. The network is trained with cross-entropy and a regulariser for that operating point, and
the threshold is chosen on validation data. The settings are ones at which the regulariser works on
this split: the page shows how to use it, not whether it pays
([s_measures.md](../s_measures.md) has the comparison over seeds).

Run: python docs/tutorials/rare_positives.py
"""

# %%
# Digits with noise; a positive is an 8, and half of the 8s are left out to make them rarer.
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

import evalgrad as eg

torch.manual_seed(0)
pixels, digit = (torch.from_numpy(x) for x in load_digits(return_X_y=True))
kept = (digit != 8) | (torch.rand(len(digit)) < 0.5)
inputs = pixels[kept].float() / 16 + 0.1 * torch.randn(int(kept.sum()), 64)
target = (digit[kept] == 8).long()
order = torch.randperm(len(target))
train, validation, test = order[:800], order[800:1200], order[1200:]
print(f"{len(target)} items, {target.float().mean():.1%} positive")

# %%
# `RecallAtPrecision` takes the labels of the training data, and with each batch the `index` of its
# items: it keeps the scores of the whole data, so that a batch without positives does no harm.
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
measure = eg.RecallAtPrecision(0.9, labels=target[train])
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(600):
    index = torch.randint(len(train), (64,))
    rows = train[index]
    scores = model(inputs[rows]).squeeze(1)
    loss = F.binary_cross_entropy_with_logits(scores, target[rows].float())
    loss = loss + 0.1 * measure(scores, target[rows], index=index)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 150 == 149:
        print(f"step {step + 1}: loss {loss.item():.3f}")

# %%
# A trained score has no natural threshold. `best_threshold` takes the one with the highest recall
# among those that reach the precision on validation data.
with torch.no_grad():
    scores = model(inputs).squeeze(1)
threshold = eg.decisions.best_threshold(
    scores[validation], target[validation], metric="recall_at_precision", at_least=0.9
)
print(f"threshold {threshold.item():.2f}")

# %%
# On test data precision and recall come out otherwise: the threshold was chosen on some twenty
# positives.
alarm, true = scores[test] > threshold, target[test] == 1
print(f"precision {true[alarm].float().mean():.2f}, recall {alarm[true].float().mean():.2f}")
best = eg.metrics.recall_at_precision(scores[test], target[test], precision=0.9)
print(f"the best threshold for the test data would have had recall {best:.2f} at precision 0.9")

# %%
# Where the precision is a requirement and not a wish, make it a constraint: `at_least=` lets the
# loss vanish while it is met, and `diagnostics()` says whether it is
# (see [s_measures.md](../s_measures.md)).
measure = eg.RecallAtPrecision(0.9, at_least=0.8, labels=target[train])
value = measure(scores[train], target[train], index=torch.arange(len(train)))
print({name: measure.diagnostics()[name] for name in ("met", "why")})
