"""Direct losses whose epsilon or cutoff moves in a training: options of `evalgrad train`."""

import math

import pytest
import torch

import evalgrad as eg
from evalgrad_lab.data.batches import Batch
from evalgrad_lab.data.dataset import Part
from evalgrad_lab.errors import UserError
from evalgrad_lab.given import Given
from evalgrad_lab.loss_factories import make
from evalgrad_lab.phases import plan

STEPS = 11
TARGET = (torch.arange(40) % 7 == 3).long()


def scores():
    return torch.randn(40, generator=torch.Generator().manual_seed(0))


def steps_of(name, options, kind="ranking", x=None, target=TARGET, mix=None):
    """The loss of a training of so many steps, and what it says at each."""
    x = scores() if x is None else x
    given = Given(Part(torch.zeros(len(target), 1), target), 2)
    (phase,) = plan(name, options, kind, mix, STEPS, given)
    batch = Batch(x, target, torch.arange(len(target)))
    return phase.loss, [phase.loss(x, batch) for _ in range(STEPS)]


def gradient(loss, *args, **options):
    x = args[0].clone().requires_grad_()
    loss(x, *args[1:], **options).backward()
    return x.grad


def test_epsilon_is_suggested_once():
    loss = make("direct_average_precision", {"epsilon": "suggest"})
    epsilon = eg.suggest_epsilon(scores(), TARGET)
    found = gradient(loss, scores(), TARGET)
    assert torch.equal(
        found, gradient(eg.direct_average_precision_loss, scores(), TARGET, epsilon=epsilon)
    )
    gradient(loss, 100 * scores(), TARGET)
    assert loss.epsilon == epsilon
    assert loss.state_dict().keys() == {"epsilon", "step"}


@pytest.mark.parametrize(
    ("name", "options", "metric"),
    [
        ("direct_ndcg", {"k": 10, "direction": "negative"}, "ndcg"),
        ("direct_zero_one", {}, "zero_one"),
    ],
)
def test_epsilon_is_that_of_the_loss(name, options, metric):
    loss = make(name, {"epsilon": "suggest", **options})
    loss(scores(), TARGET)
    assert loss.epsilon == eg.suggest_epsilon(scores(), TARGET, metric=metric, **options)


def test_epsilon_of_masks():
    x, target = scores().view(2, 4, 5), TARGET.view(2, 4, 5).clone()
    target[0, 0] = 255
    loss = make("direct_jaccard", {"epsilon": "suggest", "ignore_index": 255})
    loss(x, target)
    rows = (x.flatten(1), (target == 1).flatten(1))
    expected = eg.suggest_epsilon(*rows, metric="jaccard", mask=(target != 255).flatten(1))
    assert loss.epsilon == expected


def test_a_batch_with_nothing_to_move_suggests_nothing():
    loss = make("direct_average_precision", {"epsilon": "suggest"})
    for x, target in ((scores(), torch.zeros(40)), (torch.zeros(40), TARGET)):
        loss(x, target)
        assert loss.epsilon.isnan()
    loss(scores(), TARGET)
    assert loss.epsilon > 0


def test_epsilon_anneals_to_a_share_at_the_last_step(monkeypatch):
    seen = []
    plain = eg.DirectAveragePrecisionLoss
    monkeypatch.setattr(
        eg,
        "DirectAveragePrecisionLoss",
        lambda **options: seen.append(options["epsilon"]) or plain(**options),
    )
    steps_of("direct_average_precision", {"epsilon": 2.0, "anneal": 0.01})
    expected = [2.0 * 0.01 ** (step / (STEPS - 1)) for step in range(STEPS)]
    assert seen[-STEPS:] == pytest.approx(expected)  # the options are checked before


def test_the_cutoff_starts_wider(monkeypatch):
    seen = []
    plain = eg.DirectNDCGLoss
    monkeypatch.setattr(
        eg, "DirectNDCGLoss", lambda **options: seen.append(options["k"]) or plain(**options)
    )
    steps_of("direct_ndcg", {"k": 5, "first_k": 40})
    trained = seen[-STEPS:]  # the options are checked before
    assert trained[0] == 40
    assert trained == sorted(trained, reverse=True)
    assert trained[5:] == [5] * (STEPS - 5)


def test_a_run_that_goes_on_keeps_step_and_epsilon():
    options = {"epsilon": "suggest", "anneal": 0.1}
    loss, _ = steps_of("direct_average_precision", options)
    again, _ = steps_of("direct_average_precision", options, x=5 * scores())
    again.load_state_dict(loss.state_dict())
    assert again.loss.step == STEPS
    assert again.loss.epsilon == loss.loss.epsilon


@pytest.mark.parametrize("other", [4.0, math.nan])
def test_ranks_agree_on_the_epsilon(monkeypatch, other):
    """On the mean of those that a batch suggested; until one did they ask again."""
    calls = []

    def all_reduce(total):
        calls.append(total)
        total += torch.tensor([0.0 if math.isnan(other) else other, not math.isnan(other)])

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    own = eg.suggest_epsilon(scores(), TARGET)
    loss, _ = steps_of("direct_average_precision", {"epsilon": "suggest"})
    assert loss.loss.epsilon == (own if math.isnan(other) else (own + other) / 2)
    assert len(calls) == 1
    nothing = torch.zeros(40, dtype=torch.long)
    loss, _ = steps_of("direct_average_precision", {"epsilon": "suggest"}, target=nothing)
    if math.isnan(other):
        assert loss.loss.epsilon.isnan()
        assert len(calls) == 1 + STEPS
    else:
        assert loss.loss.epsilon == other


def test_it_is_a_part_of_a_sum():
    both = {"direct_average_precision": {"epsilon": "suggest"}, "share": 0.5}
    loss = make("bce+direct_average_precision", both)
    assert loss(scores(), TARGET).isfinite()
    assert not loss.parts[0].epsilon.isnan()


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("direct_ndcg", {"k": 5, "first_k": 2}, "`first_k` must be at least `k`, 5; got 2"),
        ("direct_ndcg", {"k": 5, "first_k": "x"}, "`first_k` must be at least `k`, 5; got 'x'"),
        ("direct_ndcg", {"first_k": 2}, "`first_k` decreases to `k`, the cutoff of NDCG; pass"),
        ("direct_average_precision", {"anneal": "x"}, "`anneal` must be above 0 .*; got 'x'"),
        ("direct_average_precision", {"anneal": 0.0}, "`anneal` must be above 0 and at most 1"),
        ("direct_average_precision", {"anneal": 0.5, "epsilon": "much"}, "much"),
        ("direct_average_precision", {"anneal": 0.5, "depth": 3}, "depth"),
        ("bce", {"epsilon": "suggest"}, "epsilon"),
    ],
)
def test_wrong_options_are_told(name, options, text):
    with pytest.raises(UserError, match=text):
        make(name, options)


def test_without_these_options_it_is_the_loss_itself():
    loss = make("direct_average_precision", {"epsilon": 0.5})
    assert isinstance(loss, eg.DirectAveragePrecisionLoss)
    assert not math.isnan(loss(scores(), TARGET).item())
