"""Wrong versions of the direct losses, each of them tempting, that the laws must reject. A law that
rejects none proves nothing.
"""

import oracles_direct_loss as oracles
import pytest
import torch
from test_direct_loss import SIGNS, assert_meets_every_interleaving

from evalgrad._rows import with_gradient

SEEDS = range(150)


def ranking_loss(place_positives, optimistic_ties=False, keep_masked=False):
    """A direct AP loss with a given inference: the number of negatives above each positive."""

    def loss(scores, target, *, mask, epsilon, direction):
        where = torch.arange(len(scores)) if keep_masked else mask.nonzero()[:, 0]
        s, y = scores.detach().nan_to_num(0.0, 9.0, -9.0)[where].tolist(), target[where].tolist()
        value, gradient = torch.zeros_like(scores[0]), torch.zeros_like(scores)
        if not oracles.is_void(y):
            positives, negatives = oracles.sorted_lists(s, y)
            above = place_positives(s, positives, negatives, epsilon, SIGNS[direction])
            direct = oracles.interleave(positives, negatives, above)
            gradient[where] = torch.tensor(
                oracles.direct_gradient(s, y, direct, epsilon, SIGNS[direction]), dtype=scores.dtype
            )
            labels = [
                y[i] for i in oracles.model_ranking(s, [not b for b in y] if optimistic_ties else y)
            ]
            value = torch.tensor(
                float(oracles.ranking_loss(labels, "ap", None)), dtype=scores.dtype
            )
        return with_gradient(scores, value, gradient)

    return loss


def best_places(scores, positives, negatives, epsilon, sign):
    """Right: all interleavings."""
    target = [i in positives for i in range(len(scores))]
    _, order = oracles.best_ranking(scores, target, epsilon, sign, "ap", None)
    return [sum(j in negatives for j in order[: order.index(i)]) for i in positives]


def separate_places(scores, positives, negatives, epsilon, sign):
    """Every negative chooses its own best place, which is right in the positive direction only.

    In the negative one the separate optima need not rise from negative to negative; sorting them,
    the obvious repair, does not make them optimal.
    """
    P, N = len(positives), len(negatives)
    places = []
    for j in range(1, N + 1):
        gains = [0.0]  # for o = P, P - 1, .., 0 positives above
        for i in range(P, 0, -1):
            pair = 2 * (scores[negatives[j - 1]] - scores[positives[i - 1]]) / (P * N)
            gains.append(gains[-1] + pair + sign * epsilon / P * (i / (i + j - 1) - i / (i + j)))
        best = max(gains)
        places.append(min(o for o in range(P + 1) if gains[P - o] >= best - oracles.TIE * epsilon))
    places.sort()
    return [sum(o < i for o in places) for i in range(1, P + 1)]


def rejections(loss, direction):
    count = 0
    for seed in SEEDS:
        try:
            assert_meets_every_interleaving(loss, seed, direction, dtype=torch.float64)
        except AssertionError:
            count += 1
    return count


@pytest.mark.parametrize("direction", ["positive", "negative"])
def test_the_right_version_passes(direction):
    assert rejections(ranking_loss(best_places), direction) == 0


def test_the_per_negative_shortcut_is_right_in_the_positive_direction():
    assert rejections(ranking_loss(separate_places), "positive") == 0


def test_the_per_negative_shortcut_is_wrong_in_the_negative_direction():
    assert rejections(ranking_loss(separate_places), "negative") > 0


def test_the_opposite_direction_is_rejected():
    def reversed_sign(scores, positives, negatives, epsilon, sign):
        return best_places(scores, positives, negatives, epsilon, -sign)

    assert rejections(ranking_loss(reversed_sign), "positive") > 0


def test_ties_in_favour_of_the_model_are_rejected():
    assert rejections(ranking_loss(best_places, optimistic_ties=True), "positive") > 0


def test_masked_items_that_stay_in_the_lists_are_rejected():
    assert rejections(ranking_loss(best_places, keep_masked=True), "positive") > 0
