"""S-measures over ranks: the state is the same on every rank, bit by bit, and the training that of
one process.
"""

import copy

import pytest
import ranks
import torch
from test_global_batch import by_ddp, by_fsdp
from torch import nn
from torch.utils.data import DistributedSampler

import evalgrad as eg
from evalgrad.distributed import global_batch, sampler_padding

ITEMS, EXACT = 22, 1e-10
LABELS = torch.arange(ITEMS) % 3 == 0
SHARES = {2: ((5, 3), (8, 0)), 4: ((2, 2, 2, 2), (4, 0, 3, 1))}
MEASURES = {
    "f-beta": lambda: eg.FBeta(labels=LABELS),
    "f-beta, lagrangian": lambda: eg.FBeta(labels=LABELS, solver="lagrangian"),
    "f-beta, no labels": lambda: eg.FBeta(),
    "precision at recall": lambda: eg.PrecisionAtRecall(0.8, labels=LABELS),
    "recall at precision, lagrangian": lambda: eg.RecallAtPrecision(
        0.8, labels=LABELS, solver="lagrangian"
    ),
    "roc area": lambda: eg.ROCAUC(3, labels=LABELS),
}


class Training:
    """A linear scorer and a measure, with everything that a step moves."""

    def __init__(self, model, measure, loss):
        self.model, self.measure, self.loss = model, measure, loss
        parameters = measure.primal_groups(lr=0.1)
        self.optimisers = [torch.optim.SGD(model.parameters(), lr=0.5)]
        self.optimisers += [torch.optim.SGD(parameters, lr=0.1)] if parameters else []

    def step(self, x, items, indexed):
        scores = self.model(x[items]).squeeze(1)
        value = self.loss(scores, LABELS[items], **({"index": items} if indexed else {}))
        for optimiser in self.optimisers:
            optimiser.zero_grad()
        value.backward()
        for optimiser in self.optimisers:
            optimiser.step()
        self.measure.project_()
        self.measure.dual_step()
        return value.detach()


def pair(name, wrap, world):
    """The same training on the ranks and alone."""
    model, measure = nn.Linear(3, 1).double(), MEASURES[name]().double()
    alone = Training(copy.deepcopy(model), copy.deepcopy(measure), None)
    alone.loss = alone.measure
    return (
        Training(
            wrap(model, world),
            measure,
            global_batch(measure, once="index" if name != "f-beta, no labels" else None),
        ),
        alone,
    )


def state(training):
    tensors = {
        key: value
        for key, value in training.measure.state_dict().items()
        if isinstance(value, torch.Tensor)
    }
    scorer = [
        p.full_tensor() if hasattr(p, "full_tensor") else p for p in training.model.parameters()
    ]
    return tensors | {f"scorer.{i}": p.detach().clone() for i, p in enumerate(scorer)}


def furthest(one, two):
    """Largest difference of two states; what both have not seen yet (NaN) is equal."""
    return (
        torch.cat([(one[key] - two[key]).nan_to_num().abs().flatten() for key in one]).max().item()
    )


def _train(rank, world, wrap):
    results = {}
    for name in MEASURES:
        for sizes in SHARES[world]:
            x = torch.randn(ITEMS, 3, dtype=torch.float64)
            over, alone = pair(name, wrap, world)
            for step in range(4):
                union = torch.randperm(ITEMS)[: sum(sizes)]
                if step == 2:  # the first rank has no positives
                    union = union[LABELS[union].long().argsort()]
                own = union[sum(sizes[:rank]) : sum(sizes[: rank + 1])]
                values = (
                    over.step(x, own, "no labels" not in name),
                    alone.step(x, union, "no labels" not in name),
                )
                assert abs(values[0] - values[1]) < EXACT
            bits = {key: value.numpy().tobytes() for key, value in state(over).items()}
            results[name, sizes] = furthest(state(over), state(alone)), bits
    return results


@pytest.mark.parametrize("wrap", [by_ddp, by_fsdp])
@pytest.mark.parametrize("world", [2, 4])
def test_training_is_that_of_one_process(world, wrap):
    answers = ranks.run(world, _train, wrap)
    for answer in answers:
        assert not isinstance(answer, str), answer
        for key, (error, bits) in answer.items():
            assert error < EXACT, key
            assert bits == answers[0][key][1], key


def _epoch(rank, world, drop):
    """An epoch of a padded sampler, against one process that sees every item once. The padding may
    stay in, to see the harm.
    """
    x, batch = torch.randn(ITEMS, 3, dtype=torch.float64), 3
    over, alone = pair("f-beta", by_ddp, world)
    samplers = [DistributedSampler(range(ITEMS), world, r, seed=1) for r in range(world)]
    dealt = [torch.tensor(list(sampler)) for sampler in samplers]
    for start in range(0, len(dealt[0]), batch):
        drawn = [items[start : start + batch] for items in dealt]
        real = [items[~sampler_padding(s, start, len(items))] for s, items in zip(samplers, drawn)]
        over.step(x, real[rank] if drop else drawn[rank], True)
        alone.step(x, torch.cat(real), True)
    return furthest(state(over), state(alone))


def test_padding_of_the_sampler_is_left_out():
    """4 ranks draw 24 of 22 items."""
    assert all(error < EXACT for error in ranks.run(4, _epoch, True))
    assert all(error > 1e-3 for error in ranks.run(4, _epoch, False))


def test_sampler_padding_is_what_the_sampler_repeats():
    for items, world in ((10, 4), (8, 4), (3, 8), (9, 2)):
        samplers = [DistributedSampler(range(items), world, r, seed=3) for r in range(world)]
        kept = []
        for sampler in samplers:
            drawn = torch.tensor(list(sampler))
            kept += drawn[~sampler_padding(sampler, 0, len(drawn))].tolist()
        assert sorted(kept) == list(range(items))


def test_message():
    with pytest.raises(
        TypeError, match="sampler_padding: `sampler` must be a DistributedSampler; got"
    ):
        sampler_padding(torch.utils.data.SequentialSampler(range(3)), 0, 3)


@pytest.mark.parametrize(
    ("start", "count", "message"),
    [
        (-1, 2, r"`start` must be in \[0, 3\]; got -1"),
        (4, 0, r"`start` must be in \[0, 3\]; got 4"),
        (0, -1, r"`count` must be in \[0, 3\]; got -1"),
        (2, 2, r"`count` must be in \[0, 1\]; got 2"),
    ],
)
def test_items_that_no_rank_draws_are_told(start, count, message):
    sampler = DistributedSampler(range(5), num_replicas=2, rank=1)
    with pytest.raises(ValueError, match=f"sampler_padding: {message}"):
        sampler_padding(sampler, start, count)
