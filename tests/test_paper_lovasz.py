"""The exact experiments of the Lovász paper: surfaces of two pixels, the bias of circles."""

import itertools
import math

import numpy as np
import oracles
import pytest
import torch
from scipy.optimize import linprog

from evalgrad_lab.data.embedded.points import circles
from evalgrad_lab.loss_factories import make
from reproductions.lovasz import surfaces
from reproductions.lovasz.circles import BIASES, CIRCLES, LOSSES, excess, losses_of_bias

PIXELS = 4
SETS = list(itertools.product((0, 1), repeat=PIXELS))
ERRORS = torch.tensor([[0.3, 0.9], [0.8, 0.1], [1.7, 0.4]], dtype=torch.float64)


@pytest.mark.parametrize("truth", surfaces.TRUTHS)
def test_jaccard_loss_is_the_share_of_wrong_pixels_in_the_union(truth):
    for wrong in itertools.product((0, 1), repeat=2):
        union = sum(a or b for a, b in zip(truth, wrong))
        found = surfaces.jaccard_loss(truth, torch.tensor([wrong]))
        assert float(found) == pytest.approx(sum(wrong) / union if union else 0.0)


def expected_extension(truth, errors):
    """Two pixels: the larger error a, the smaller b, and the Jaccard loss of their sets, which a
    and b interpolate.
    """
    a, b = errors.max(), errors.min()
    first = torch.zeros(1, 2).index_fill(1, errors.argmax(), 1.0)
    return b * surfaces.jaccard_loss(truth, torch.ones(1, 2)) + (a - b) * surfaces.jaccard_loss(
        truth, first
    )


@pytest.mark.parametrize("truth", surfaces.TRUTHS)
def test_surfaces_interpolate_the_jaccard_loss(truth):
    expected = torch.cat([expected_extension(truth, errors) for errors in ERRORS])
    torch.testing.assert_close(surfaces.hinge(truth, ERRORS), expected)
    differences = torch.tensor([[0.5, -2.0], [3.0, 0.1]], dtype=torch.float64)
    expected = torch.cat(
        [expected_extension(truth, errors) for errors in torch.sigmoid(-differences)]
    )
    torch.testing.assert_close(surfaces.softmax(truth, differences), expected)


@pytest.mark.parametrize("pixels", [1, 2, 7])
def test_the_extension_of_the_hamming_distance_is_the_hinge(pixels):
    """Section 2.1: the sum of the hinge errors, and for one pixel the Lovász hinge is the hinge."""
    scores, target = 2 * torch.randn(1, pixels, dtype=torch.float64), torch.rand(1, pixels) < 0.5
    errors = (1 - scores * (2.0 * target - 1)).clamp(min=0)
    found = oracles.extension(errors[0].tolist(), None, lambda wrong, _: sum(wrong))
    assert found == pytest.approx(pixels * make("hinge", {})(scores, target).item())
    if pixels == 1:
        assert found == pytest.approx(make("lovasz_hinge", {})(scores, target).item())


def random_function(power, seed):
    """A power of a random sum, minus another sum: submodular if the power is concave. It takes the
    ground truth as the oracles do, and does not need it.
    """
    first, second = np.random.default_rng(seed).random((2, PIXELS))
    return lambda wrong, truth=None: (first @ wrong) ** power - second @ wrong


def closure(function, errors):
    """The convex closure: the least mean of the function over the sets that have this mean."""
    means = np.vstack([np.array(SETS).T, np.ones(len(SETS))])
    costs = [function(one) for one in SETS]
    return linprog(costs, A_eq=means, b_eq=[*errors, 1.0], bounds=(0, None)).fun


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("power", "submodular"), [(0.5, True), (2, False)])
def test_sorting_gives_the_convex_closure_of_a_submodular_function(power, submodular, seed):
    """Definitions 1 and 2, for set functions that are no loss of the library."""
    function = random_function(power, seed)
    pairs = np.array(list(itertools.combinations(SETS, 2)))
    gaps = [function(a) + function(b) - function(a | b) - function(a & b) for a, b in pairs]
    assert (min(gaps) >= -1e-12) == submodular
    errors = np.random.default_rng(100 + seed).random(PIXELS)
    found, below = oracles.extension(errors, None, function), closure(function, errors)
    assert (found == pytest.approx(below)) == submodular


def test_convexity_gap_finds_a_dent(monkeypatch):
    grid = surfaces.square(-1, 1, 5)
    assert surfaces.convexity_gap((1, 0), grid) < 1e-12
    monkeypatch.setattr(surfaces, "hinge", lambda truth, margins: -margins.square().sum(1))
    assert surfaces.convexity_gap((1, 0), grid) > 0.1


def verdicts(experiment, numbers):
    return [claim.verdict for claim in experiment.judge(numbers)]


def test_surfaces_are_judged_by_their_numbers():
    good = {"hinge gap": 0.0, "hinge convexity": 0.0, "hinge bound": 0.0, "softmax gap": 1e-13}
    assert verdicts(surfaces.SURFACES, good) == ["found"] * 4
    dented = verdicts(surfaces.SURFACES, good | {"hinge convexity": 0.1})
    assert dented == ["found", "not found", "found", "found"]


def test_bias_of_cross_entropy_is_the_prior_log_odds():
    """log p(f | in) / p(f | out) = f for N(1/2, 1) and N(-1/2, 1): the best score is f + log odds;
    balanced, f itself.
    """
    setting = {"seed": 0, "radii": (3, 20), "images": 10, "size": 50}
    curves = losses_of_bias(**setting)
    share = circles(0, images=10, size=50, radii=(3, 20)).train.target.double().mean().item()
    best = {name: BIASES[curve.index(min(curve))] for name, curve in curves.items()}
    assert best["cross-entropy"] == pytest.approx(math.log(share / (1 - share)), abs=0.1)
    assert best["balanced cross-entropy"] == pytest.approx(0, abs=0.1)


def test_excess_is_the_jaccard_loss_at_the_minimiser_above_the_least():
    curves = {name: [3.0, 1.0, 2.0] for name in LOSSES} | {
        "Jaccard": [0.5, 0.2, 0.4],
        "hinge": [1.0, 2.0, 0.5],
    }
    assert excess(curves) == dict.fromkeys(LOSSES, 0.0) | {"hinge": pytest.approx(20)}


def test_circles_are_judged_by_their_numbers():
    draw = {"cross-entropy": 12.0, "hinge": 9.0, "Lovász hinge": 0.8, "soft Jaccard": 3.0}
    draw["balanced cross-entropy"] = 0.1
    found = {name: [[value, value + 0.1, value]] * 2 for name, value in draw.items()}
    assert verdicts(CIRCLES, found) == ["found", "found", "found", "not found", "found"]
    missed = found | {"Lovász hinge": [[9.0, 9.2, 9.1]] * 2}
    assert verdicts(CIRCLES, missed)[:3] == ["not found", "found", "undecided"]
