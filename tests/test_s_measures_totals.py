"""Totals of the data without positions: every batch enters, fades, and is enough to train on."""

import pytest
import torch

from evalgrad import FBeta, RecallAtPrecision, metrics
from evalgrad.s_measures.counts import EVERY, PARTS
from evalgrad.s_measures.surrogate_errors import error_totals
from evalgrad.s_measures.surrogates import SURROGATES


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.98])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # the state is float32
def test_every_batch_enters_the_totals_and_fades(momentum, dtype, engine):
    measure, expected = FBeta(momentum=momentum), torch.zeros(1, 2, 3)
    for size in range(1, EVERY + 5):
        scores, target = torch.randn(size, dtype=dtype), torch.rand(size) < 0.4
        measure(scores, target)
        batch = error_totals(scores, target, torch.zeros(1), SURROGATES["hinge"])
        expected = momentum * expected + batch
    torch.testing.assert_close(measure.groups[0].counts.totals, expected.float())


def test_labels_undo_a_sampler_that_balances_the_classes():
    """Without them what is reported is of the sampled batches, as docs/s_measures.md says."""
    labels = torch.arange(1000) % 20 == 0
    scores = torch.randn(1000) + labels
    drawn = torch.cat([torch.arange(1000)[labels].repeat(19), torch.arange(1000)[~labels]])
    for known, given in ((labels, slice(None)), (None, drawn)):
        measure = FBeta(labels=known)
        measure(scores[drawn], labels[drawn])
        found = measure.diagnostics()["metric"]
        assert found == pytest.approx(float(metrics.fbeta_score(scores[given], labels[given])))


def test_multipliers_move_within_a_long_pass():
    """With a cache too: after a part of the data, not before a number of batches."""
    labels = torch.arange(40 * EVERY) % 4 == 0
    measure, moves = RecallAtPrecision(0.7, labels=labels), []
    for item, index in enumerate(torch.arange(len(labels)).split(1)):
        before = measure.groups[0].mu.clone()
        measure(torch.randn(1), labels[index], index=index)
        if not torch.equal(before, measure.groups[0].mu):
            moves.append(item)
    assert len(moves) >= PARTS - 1
    assert set(torch.tensor(moves).diff().tolist()) == {len(labels) // PARTS}


def _toy(seed, items):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(items, 6, generator=draw)
    y = x[:, 0] + 0.5 * x[:, 1] ** 2 + 0.6 * torch.randn(items, generator=draw) > 2.2
    return torch.cat([x, x[:, 1:] ** 2, torch.ones(items, 1)], 1), y


def _trained(seed, indexed):
    """F1 on fresh items of a linear scorer after eight passes in shuffled batches."""
    x, y = _toy(seed, 1500)
    measure, weight = FBeta(labels=y) if indexed else FBeta(), torch.zeros(12, requires_grad=True)
    optimiser = torch.optim.Adam([weight], lr=0.02)
    order = torch.Generator().manual_seed(seed)
    for _ in range(8):
        for index in torch.randperm(len(x), generator=order).split(50):
            optimiser.zero_grad()
            keywords = {"index": index} if indexed else {}
            measure(x[index] @ weight, y[index], **keywords).backward()
            optimiser.step()
    fresh, truth = _toy(seed + 1000, 4000)
    return metrics.fbeta_score(fresh @ weight.detach(), truth).item()


def test_a_stream_trains_as_well_as_positions():
    with_index, without = (
        torch.tensor([_trained(seed, indexed) for seed in range(3)]) for indexed in (True, False)
    )
    assert (with_index - without).mean().abs() < 0.02


def _products(seed, items):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(items, 8, generator=draw)
    return x, x[:, 0] + x[:, 1] * x[:, 2] + 0.7 * torch.randn(items, generator=draw) > 2.3


def _network_trained(seed, momentum):
    """F1 on fresh items after 12 passes of 32 batches: fewer than the default looks back over."""
    x, y = _products(seed, 4000)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimiser, measure = torch.optim.Adam(model.parameters(), lr=3e-3), FBeta(momentum=momentum)
    for _ in range(12):
        for index in torch.randperm(4000).split(128):
            optimiser.zero_grad()
            measure(model(x[index])[:, 0], y[index]).backward()
            optimiser.step()
    fresh, truth = _products(seed + 500, 8000)
    with torch.no_grad():
        return metrics.fbeta_score(model(fresh)[:, 0], truth).item()


def test_a_short_training_of_few_batches_wants_a_shorter_memory():
    """As docs/s_measures.md says."""
    gains = [_network_trained(seed, 0.9) - _network_trained(seed, 0.98) for seed in range(4)]
    assert sum(gains) / 4 > 0.01, gains
