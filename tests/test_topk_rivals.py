"""The losses that smooth top-k is compared with: special cases, the definition of the top-k
entropy, and wrong versions that the laws must reject.
"""

import math
from dataclasses import replace

import oracles_topk_rivals as oracles
import pytest
import test_laws
import torch
import torch.nn.functional as F
from cases import CASES
from hypothesis import given
from hypothesis import strategies as st
from test_broken import rejected

import evalgrad as eg

seeds = st.integers(0, 2**32 - 1)
NAMED = {case.name: case for case in CASES}


def drawn(seed, rows=20, classes=9, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(rows, classes, dtype=torch.float64, generator=generator)
    return scores, torch.randint(classes, (rows,), generator=generator)


def test_one_guess_is_what_everyone_knows():
    scores, target = drawn(0)
    for truncated in (False, True):
        loss = eg.topk_entropy_loss(scores, target, k=1, truncated=truncated)
        torch.testing.assert_close(loss, F.cross_entropy(scores, target))
    crammer_singer = (scores + 1 - F.one_hot(target, 9)).amax(1) - scores.gather(
        1, target[:, None]
    )[:, 0]
    for variant in ("alpha", "beta"):
        loss = eg.topk_svm_loss(scores, target, k=1, variant=variant, reduction="none")
        torch.testing.assert_close(loss, crammer_singer)


@given(seed=seeds, k=st.integers(1, 8))
def test_alpha_is_below_beta(seed, k):
    scores, target = drawn(seed)
    alpha, beta = (
        eg.topk_svm_loss(scores, target, k=k, variant=v, reduction="none")
        for v in ("alpha", "beta")
    )
    assert (alpha <= beta + 1e-12).all()


def test_fewer_candidates_than_guesses_are_refused_where_they_are_set():
    match = "`candidates` must be above k = 20; got 16"
    with pytest.raises(ValueError, match=match):
        eg.SortingNetworkTopKLoss(k=20)
    with pytest.raises(ValueError, match=match):
        eg.sorting_network_topk_loss(torch.zeros(1, 40), torch.tensor([0]), k=20)
    eg.SortingNetworkTopKLoss(k=20, candidates=21)


def dual(a, x):
    """The objective of the top-k entropy at x."""
    s = x.sum(-1).clamp(max=1)  # rounded
    return (a * x).sum(-1) - torch.special.xlogy(x, x).sum(-1) - torch.special.xlogy(1 - s, 1 - s)


@given(seed=seeds, k=st.integers(1, 8), scale=st.sampled_from([0.1, 2.0, 30.0]))
def test_nothing_feasible_is_better_than_the_top_k_entropy(seed, k, scale):
    """Its own x, the gradient, is feasible and reaches the value; no other of many is above it."""
    scores, target = drawn(seed, rows=1, scale=scale)
    scores.requires_grad_()
    value = eg.topk_entropy_loss(scores, target, k=k)
    value.backward()
    others = torch.arange(9) != target
    a, x = (scores - scores[0, target])[0, others].detach(), scores.grad[0, others]
    assert (x <= x.sum() / k + 1e-9).all()
    assert (x >= 0).all()
    torch.testing.assert_close(dual(a, x), value.detach())
    generator = torch.Generator().manual_seed(seed)
    p = torch.rand(500, 8, dtype=torch.float64, generator=generator) ** 4
    p = p / p.sum(1, keepdim=True)
    # as far from the uniform distribution as the bound allows
    share = ((1 / k - 1 / 8) / (p.amax(1, keepdim=True) - 1 / 8)).clamp(max=1)
    p = share * p + (1 - share) / 8
    near = torch.cat([p, 0.9 * x / x.sum() + 0.1 * p])
    s = torch.rand(1000, 1, dtype=torch.float64, generator=generator)
    assert (dual(a, s * near) <= value.detach() + 1e-9).all()


def test_a_cold_network_sorts():
    scores, target = drawn(1, scale=20.0)
    loss = eg.sorting_network_topk_loss(scores, target, k=3, temperature=1e-3, reduction="none")
    wrong = (scores > scores.gather(1, target[:, None])).sum(1) >= 3
    assert (loss[~wrong] < 1e-6).all()
    assert (loss[wrong] > 10).all()


def test_the_network_has_as_many_places_as_candidates():
    """Probabilities of all places add up to 1: with k = candidates the loss would be 0."""
    from evalgrad.baselines import sorting_network

    scores, target = drawn(2)
    ranked, place = sorting_network._candidates(scores, target[:, None], 6)
    assert (ranked[:, :-1] >= ranked[:, 1:]).all()
    assert torch.equal(ranked.gather(1, place), scores.gather(1, target[:, None]))
    total = sorting_network._log_places(ranked, place, 1.0).logsumexp(1)
    torch.testing.assert_close(total, torch.zeros_like(total))


def test_messages():
    scores, target = drawn(0)
    with pytest.raises(ValueError, match="`candidates` must be above k = 5; got 4"):
        eg.sorting_network_topk_loss(scores, target, candidates=4)
    with pytest.raises(ValueError, match="`variant` must be one of 'alpha', 'beta'"):
        eg.topk_svm_loss(scores, target, variant="gamma")
    with pytest.raises(TypeError, match="`truncated` must be True or False"):
        eg.topk_entropy_loss(scores, target, truncated=1)
    for loss in (eg.topk_svm_loss, eg.topk_entropy_loss, eg.sorting_network_topk_loss):
        with pytest.raises(ValueError, match=r"`k` must be in \[1, 8\]; got 9"):
            loss(scores, target, k=9, **({"candidates": 20} if "sorting" in loss.__name__ else {}))


# ---- classes that are ruled out ------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["topk_svm", "topk_entropy", "topk_entropy_truncated", "sorting_network_topk"]
)
def test_a_score_of_minus_infinity_rules_a_class_out(name):
    """Finite, with the value of one class less where the class is not needed to fill the k."""
    case = NAMED[name]
    scores, target = drawn(3, rows=6, classes=7)
    target = target % 6
    without = case(scores[:, :6], target)
    scores[:, 6] = -math.inf
    x = scores.requires_grad_()
    value = case(x, target)
    value.backward()
    torch.testing.assert_close(value, without)
    assert x.grad[:, :6].isfinite().all()


@pytest.mark.parametrize("name", ["topk_entropy", "topk_entropy_truncated", "sorting_network_topk"])
def test_fewer_rivals_than_guesses(name):
    """The label is surely among the first k: it costs nothing, and nothing is to be learnt."""
    options = {"k": 5, **({"truncated": True} if name.endswith("truncated") else {})}
    loss = getattr(eg, f"{name.removesuffix('_truncated')}_loss")
    scores, target = drawn(3, rows=4, classes=10)
    scores[0, 3:], target[0] = -math.inf, 0
    x = scores.requires_grad_()
    losses = loss(x, target, **options, reduction="none")
    losses.sum().backward()
    assert losses[0].item() == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(x.grad[0], torch.zeros_like(x.grad[0]))
    (others,) = torch.autograd.grad(loss(x[1:], target[1:], **options, reduction="sum"), x)
    torch.testing.assert_close(x.grad[1:], others[1:])


# ---- wrong versions ------------------------------------------------------------------------------


def by_rows(core):
    def loss(x, target, k, **options):
        rows = x.movedim(1, -1).flatten(0, -2)
        return core(rows, target.flatten()[:, None], k, **options).mean()

    return loss


def svm(keep_label=False, order="alpha", divide=True):
    def core(x, y, k, margin=1.0, **_):
        v = margin + x - x.gather(1, y)
        v = v if keep_label else v.scatter(1, y, 0.0)
        top = v.topk(k, dim=1).values
        top = top.relu() if order == "beta" else top
        return top.sum(1).relu() / (k if divide else 1)

    return by_rows(core)


def entropy(dropped=0, bounded=True, label=True):
    """By bisection for p; or truncated, with so many more classes `dropped`."""

    def core(x, y, k, **_):
        lead = (x - x.gather(1, y)).scatter(1, y, -math.inf).sort(1, descending=True).values
        lead = lead[:, k - 1 + dropped :] if not bounded else lead[:, :-1]
        h = lead.logsumexp(1)
        if bounded:
            shares = [oracles.shares(row.tolist(), k) for row in lead.detach()]
            p = torch.tensor(shares, dtype=x.dtype)
            h = (p * lead - torch.special.xlogy(p, p)).sum(1)
        return F.softplus(h, threshold=50) if label else h

    return by_rows(core)


WRONG = {
    "the label among the violations": ("topk_svm", svm(keep_label=True)),
    "each clipped before the mean": ("topk_svm", svm(order="beta")),
    "a sum, not a mean": ("topk_svm", svm(divide=False)),
    "the mean clipped": ("topk_svm_beta", svm()),
    "k left out, not k - 1": ("topk_entropy_truncated", entropy(dropped=1, bounded=False)),
    "k - 2 left out": ("topk_entropy_truncated", entropy(dropped=-1, bounded=False)),
    "left out, not bounded": ("topk_entropy", entropy(bounded=False)),
    "without the label": ("topk_entropy", entropy(label=False)),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_versions_are_rejected(what):
    name, loss = WRONG[what]
    broken = replace(NAMED[name], loss=loss)
    assert rejected(broken, test_laws.test_equals_oracle, options=-1)


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("topk_svm", svm()),
        ("topk_svm_beta", svm(order="beta")),
        ("topk_entropy_truncated", entropy(bounded=False)),
        ("topk_entropy", entropy()),
    ],
)
def test_right_versions_pass(name, loss):
    """So that what is rejected above is rejected for its mistake."""
    assert not rejected(replace(NAMED[name], loss=loss), test_laws.test_equals_oracle, options=-1)


def network(forgetful=False, backwards=False, late=False):
    def core(x, y, k, temperature=1.0, **_):
        others = x.scatter(1, y, -math.inf).sort(1, descending=True).values[:, :-1]
        place = (others > x.gather(1, y)).sum(1)
        rows = []
        for row, p, own in zip(others, place.tolist(), x.gather(1, y)):
            values = list(torch.cat([row[:p], own, row[p:]]))
            c = [torch.tensor(float(i == p), dtype=x.dtype) for i in range(len(values))]
            for layer in range(len(values) - late):
                for i in range(layer % 2, len(values) - 1, 2):
                    s = torch.sigmoid((values[i] - values[i + 1]) / temperature)
                    s = 1 - s if backwards else s
                    c[i], c[i + 1] = s * c[i] + (1 - s) * c[i + 1], (1 - s) * c[i] + s * c[i + 1]
                    if not forgetful:
                        a, b = values[i], values[i + 1]
                        values[i], values[i + 1] = s * a + (1 - s) * b, (1 - s) * a + s * b
            rows.append(-sum(c[:k]).log())
        return torch.stack(rows)

    return by_rows(core)


def test_wrong_networks_are_rejected():
    """Comparators that pass on the scores as they came; that sort upwards; a layer too few."""
    case = NAMED["sorting_network_topk"]
    law = test_laws.test_equals_oracle
    assert not rejected(replace(case, loss=network()), law, options=-1)
    for mistake in ({"forgetful": True}, {"backwards": True}, {"late": True}):
        assert rejected(replace(case, loss=network(**mistake)), law, options=-1)
