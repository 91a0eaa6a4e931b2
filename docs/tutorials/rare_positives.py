"""Rare positives under a precision constraint.

One digit in twenty has to be found, and nine alarms in ten must be right: the metric is the recall
at a precision of 0.9. The network is trained with cross-entropy and a regulariser for that metric;
its learning rate, the weight of the regulariser and the threshold are chosen on validation data.
The page shows how to use the regulariser. One split with so few positives cannot show whether it
helps; [s_measures.md](../s_measures.md) has a comparison over seeds.

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
counts = ", ".join(str(target[part].sum().item()) for part in (train, validation, test))
print(f"{len(target)} items, {target.float().mean():.1%} positive: {counts} in the three parts")

# %%
# `RecallAtPrecision` takes the labels of the training set, and with each batch the `index` of its
# items in them: it keeps the last score of every item, so batches without positives do no harm.
# With `weight=0` this is plain cross-entropy.


def trained(lr, weight):
    """The scores of all items, by a network trained with these settings."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    measure = eg.RecallAtPrecision(0.9, labels=target[train])
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(600):
        index = torch.randint(len(train), (64,))
        rows = train[index]
        scores = model(inputs[rows]).squeeze(1)
        loss = F.binary_cross_entropy_with_logits(scores, target[rows].float())
        if weight:
            loss = loss + weight * measure(scores, target[rows], index=index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return model(inputs).squeeze(1)


# %%
# Choose the settings on validation data, by the metric itself. In a draw the first one is kept, so
# the regulariser has to be better than cross-entropy alone; if the weight 0 is chosen, it is not
# needed here.
found = {}
for weight in (0.0, 0.03, 0.1, 0.3):
    for lr in (3e-3, 1e-2, 3e-2):
        scores = trained(lr, weight)
        recall = eg.metrics.recall_at_precision(
            scores[validation], target[validation], precision=0.9
        )
        found[weight, lr] = recall.item(), scores
    line = ", ".join(f"{found[weight, lr][0]:.2f} at lr={lr}" for lr in (3e-3, 1e-2, 3e-2))
    print(f"weight {weight}: validation recall {line}")
weight, lr = max(found, key=lambda settings: found[settings][0])
scores = found[weight, lr][1]
print(f"chosen: weight {weight}, lr={lr}")

# %%
# A trained score has no natural threshold. `best_threshold` returns the one with the highest recall
# among those that reach the precision on validation data.
threshold = eg.decisions.best_threshold(
    scores[validation], target[validation], metric="recall_at_precision", at_least=0.9
)
print(f"threshold {threshold.item():.2f}")

# %%
# On test data, precision and recall differ from those on validation data: settings and threshold
# were chosen on very few positives.
alarm, true = scores[test] > threshold, target[test] == 1
print(f"precision {true[alarm].float().mean():.2f}, recall {alarm[true].float().mean():.2f}")
best = eg.metrics.recall_at_precision(scores[test], target[test], precision=0.9)
print(f"the best threshold for the test data would have had recall {best:.2f} at precision 0.9")

# %%
# If the precision is a hard requirement, make it a constraint with `at_least=`: the loss is 0 while
# the constraint is met, and `diagnostics()` says whether it is
# (see [s_measures.md](../s_measures.md)).
measure = eg.RecallAtPrecision(0.9, at_least=0.8, labels=target[train])
value = measure(scores[train], target[train], index=torch.arange(len(train)))
print({name: measure.diagnostics()[name] for name in ("met", "why")})
