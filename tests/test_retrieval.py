"""Retrieval from embeddings: the loss against every ranking of every query, in chunks and beside a
memory; the metrics against all orders of the ties and pytorch-metric-learning.
"""

import runpy
import sys
from pathlib import Path

import oracles_rankings
import oracles_retrieval as oracles
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_first_places import check_meets_every_order, draw
from torchmetrics.functional import retrieval as theirs

import evalgrad as eg
from evalgrad import _native, metrics
from evalgrad.direct_loss import retrieval

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from accounting import account

seeds = st.integers(0, 2**32 - 1)
SIGNS = {"positive": 1, "negative": -1}
loss = eg.retrieval_average_precision_loss


def drawn(seed, n=7, dim=3, classes=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    labels[:3] = torch.tensor([0, 0, 1])
    return torch.randn(n, dim, dtype=dtype, generator=generator), labels


def gradient(embeddings, labels, function=loss, **options):
    x = embeddings.detach().clone().requires_grad_()
    value = function(x, labels, **options)
    value.sum().backward()
    return value.detach(), x.grad


def check_meets_every_ranking(function, seed, direction, similarity, epsilon=0.3):
    """Law: the gradient is that of all queries' best rankings, through both embeddings."""
    x, labels = drawn(seed)
    options = {"direction": direction, "similarity": similarity, "epsilon": epsilon}
    mask = torch.arange(len(x)) != seed % 3 + 3
    value, found = gradient(x, labels, function, mask=mask, **options)
    kept, names = x[mask].tolist(), labels[mask].tolist()
    expected = oracles.gradient(kept, names, epsilon, SIGNS[direction], similarity)
    torch.testing.assert_close(found[mask], torch.tensor(expected, dtype=torch.float64))
    assert (found[~mask] == 0).all()
    rows = [[list(column) for column in zip(*kept)]]
    assert value.item() == pytest.approx(oracles.value(rows, [names], similarity=similarity))


@pytest.mark.parametrize("direction", SIGNS)
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@given(seed=seeds)
def test_gradient_meets_every_ranking(direction, similarity, seed):
    check_meets_every_ranking(loss, seed, direction, similarity)


@given(seed=seeds)
def test_ties_count_against_the_model(seed):
    """Products of small integers are exact."""
    x, labels = drawn(seed)
    x = x.round()
    value = loss(x, labels, similarity="dot")
    rows = [[list(column) for column in zip(*x.tolist())]]
    assert value.item() == pytest.approx(oracles.value(rows, [labels.tolist()], similarity="dot"))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("pairs", [1, 25, 40, 10**6])
def test_chunks_change_nothing(monkeypatch, pairs, reduction):
    """Nor does it keep the pairs: the sum of what "none" returns has the same gradient."""
    x, labels = drawn(3, n=12)
    mask = torch.arange(12) != 4
    options = {"mask": mask, "epsilon": 0.3}
    losses, expected = gradient(x, labels, reduction="none", **options)
    assert losses.shape == (12,)
    same = (labels.unsqueeze(1) == labels) & mask & ~torch.eye(12, dtype=torch.bool)
    live = (same.any(1) & mask).sum() if reduction == "mean" else 1
    queries = []

    def watched(scores, *rest):
        queries.append(len(scores))
        return direct_ranking(scores, *rest)

    direct_ranking = retrieval.direct_ranking
    monkeypatch.setattr(retrieval, "direct_ranking", watched)
    monkeypatch.setattr(retrieval, "PAIRS", pairs)
    value, found = gradient(x, labels, reduction=reduction, **options)
    assert sum(queries) == 12
    assert max(queries) == max(1, min(12, pairs // 12))
    assert (losses[~mask] == 0).all()
    torch.testing.assert_close(value, losses.sum() / live)
    torch.testing.assert_close(found, expected / live)


def peak(count, dim=128):
    """Bytes that a step holds at most, beside its inputs, counted without computing."""
    x = torch.empty(count, dim, device="meta", requires_grad=True)
    labels = torch.empty(count, dtype=torch.int64, device="meta")
    with _native.open_operators():
        seen = account(lambda: loss(x, labels).backward(), (x, labels))
    return seen.peak


def test_memory_of_large_batches_is_bounded():
    """From 4,096 to 16,384 embeddings there are 16 times the pairs."""
    assert peak(16384) < 1.3 * peak(4096)


def test_void_queries_are_left_out():
    x, labels = drawn(0, n=6)
    labels = torch.tensor([0, 0, 1, 1, 1, 7])  # the last has no positive
    losses = loss(x, labels, reduction="none")
    assert losses[-1] == 0
    torch.testing.assert_close(loss(x, labels), losses.sum() / 5)
    for same in (torch.arange(6), torch.zeros(6, dtype=torch.int64)):
        value, grad = gradient(x, same)
        assert value == 0
        assert (grad == 0).all()


def test_any_integers_are_labels():
    x, labels = drawn(1)
    names = torch.tensor([-7, 2**40, 0])[labels]
    assert loss(x, names) == loss(x, labels)
    assert loss(x, labels == 0) == loss(x, (labels == 0).long())


def test_vectors_of_length_zero_are_like_none():
    x, labels = drawn(2)
    x[3] = 0
    value, grad = gradient(x, labels)
    assert value.isfinite()
    assert grad.isfinite().all()
    scores = metrics.retrieval_lists(x, labels)[0]
    assert (scores[3] == 0).all()


def test_cosines_do_not_depend_on_lengths():
    x, labels = drawn(4, dtype=torch.float32)
    for scale in (1e-30, 1e30):
        torch.testing.assert_close(loss(scale * x, labels), loss(x, labels))
    lengths = torch.rand(7, 1, generator=torch.Generator().manual_seed(0)) + 0.5
    torch.testing.assert_close(loss(lengths * x, labels), loss(x, labels))


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize("options", [{"reduction": "none"}, {"similarity": "dot"}])
def test_every_query_under_compile_and_autocast(options):
    x, labels = drawn(5, dtype=torch.float32)
    expected = loss(x, labels, **options)
    compiled = torch.compile(lambda x, y: loss(x, y, **options), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, labels), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(loss(x, labels, **options), expected)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_autocast_does_not_round_the_gradient(reduction):
    x, labels = drawn(5, dtype=torch.float32)
    options = {"reduction": reduction, "epsilon": 1.0}
    _, expected = gradient(x, labels, **options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(x.requires_grad_(), labels, **options)
    value.backward()
    assert expected.abs().sum() > 0
    assert torch.equal(x.grad, expected)


def test_remembered_embeddings_take_part():
    """As docs/retrieval.md does it: the memory's lists are the coordinates."""
    memory = eg.distributed.CrossBatchMemory(8, lists=(3,))
    (old, old_labels), (new, labels) = drawn(0, dtype=torch.float32), drawn(1, dtype=torch.float32)
    present = new.clone().requires_grad_()
    for x, y in ((old, old_labels), (present, labels)):
        vectors, names, mask = memory(x.T, y.expand(3, -1))
        value = loss(vectors.T, names[0], mask=mask[0])
    value.backward()
    both, names = torch.cat([new, old]), torch.cat([labels, old_labels])
    expected, grad = gradient(both, names)
    torch.testing.assert_close(value.detach(), expected)
    torch.testing.assert_close(present.grad, grad[:7])


def test_messages():
    x, labels = drawn(0)
    with pytest.raises(ValueError, match=r"`embeddings` must be \(N, D\).*flatten\(1\)"):
        loss(x.unsqueeze(1), labels)
    with pytest.raises(ValueError, match=r"`labels` must be of shape \(7,\)"):
        loss(x, labels[:3])
    with pytest.raises(TypeError, match="`labels` must be an integer or bool tensor"):
        loss(x, labels.double())
    with pytest.raises(ValueError, match="`similarity` must be one of 'cosine', 'dot'"):
        loss(x, labels, similarity="euclidean")
    with pytest.raises(ValueError, match=r"`mask` must be 0 or 1"):
        loss(x, labels, mask=labels + 2)
    with pytest.raises(ValueError, match=r"`queries` must be \(Q,\) int64 indices in \[0, 6\]"):
        metrics.retrieval_lists(x, labels, queries=torch.tensor([7]))
    with pytest.raises(TypeError, match=r"`queries` must be a tensor; .*torch.as_tensor\(queries"):
        metrics.retrieval_lists(x, labels, queries=[0, 1])


def test_a_mask_that_cannot_be_read_makes_the_loss_nan():
    x, labels = drawn(0)
    wrong = torch.full((1, 7), 2)
    for reduction in ("mean", "none"):
        run = torch.vmap(lambda x, y, m, r=reduction: loss(x, y, mask=m, reduction=r))
        assert run(x[None], labels[None], wrong).isnan().all()


# ---- the metrics ---------------------------------------------------------------------------------

METRICS = {
    "hit_rate_at_k": (metrics.hit_rate_at_k, oracles_rankings.hit_rate, theirs.retrieval_hit_rate),
    "r_precision": (
        metrics.r_precision,
        oracles_rankings.r_precision,
        theirs.retrieval_r_precision,
    ),
}


@pytest.mark.parametrize("name", METRICS)
@given(seed=seeds, k=st.integers(1, 7), levels=st.sampled_from([1, 2, 3, 50]))
def test_meets_every_order(name, seed, k, levels):
    metric, oracle, reference = METRICS[name]
    scores, target = draw(seed, levels=levels)
    options = {"k": k} if name == "hit_rate_at_k" else {}
    check_meets_every_order(metric, oracle, scores, target, target, *options.values(), **options)
    apart = scores + torch.rand(6).argsort() / 100
    top = {"top_k": k} if options else {}
    expected = [reference(s, y, **top).item() for s, y in zip(apart, target)]
    found = metric(apart, target, reduction="none", **options)
    assert found.tolist() == pytest.approx(expected, abs=1e-6)


@given(seed=seeds, levels=st.sampled_from([1, 2, 3, 50]))
def test_map_at_r_is_average_precision_at_each_list_s_r(seed, levels):
    scores, target = draw(seed, levels=levels)
    for row in range(2):
        s, y = scores[row], target[row]
        expected = oracles_rankings.average_precision(s.tolist(), y.tolist(), int(y.sum()))
        for column, ties in enumerate(("standard", "worst")):
            found = metrics.map_at_r(s, y, ties=ties)
            assert found.item() == pytest.approx(expected[column], abs=1e-12)


def test_lists_of_some_queries_are_rows_of_all():
    x, labels = drawn(6)
    whole = metrics.retrieval_lists(x, labels, mask=labels != 2)
    for chunk in torch.arange(7).split(3):
        part = metrics.retrieval_lists(x, labels, mask=labels != 2, queries=chunk)
        for rows, all_rows in zip(part, whole):
            torch.testing.assert_close(rows, all_rows[chunk])
    _, _, mask = whole
    assert not mask.diagonal().any()


def test_equals_pytorch_metric_learning():
    calculator = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")
    inference = pytest.importorskip("pytorch_metric_learning.utils.inference")
    distances = pytest.importorskip("pytorch_metric_learning.distances")
    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    more = ("mean_average_precision", "mean_reciprocal_rank")
    judge = calculator.AccuracyCalculator(
        include=(*names, *more), knn_func=inference.CustomKNN(distances.CosineSimilarity())
    )
    x, labels = drawn(8, n=60, dim=4, classes=9)
    labels[-1] = 77  # alone: a query without a positive is left out there too
    given = judge.get_accuracy(x, labels, x, labels, ref_includes_query=True)
    scores, target, mask = metrics.retrieval_lists(x, labels)
    ours = {
        "precision_at_1": metrics.hit_rate_at_k(scores, target, mask=mask, k=1),
        "r_precision": metrics.r_precision(scores, target, mask=mask),
        "mean_average_precision_at_r": metrics.map_at_r(scores, target, mask=mask),
        "mean_average_precision": metrics.average_precision(scores, target, mask=mask),
        "mean_reciprocal_rank": metrics.reciprocal_rank(scores, target, mask=mask),
    }
    for name, value in ours.items():
        assert value.item() == pytest.approx(given[name], abs=1e-6), name


def test_the_example_inside_pytorch_metric_learning(capsys):
    pytest.importorskip("pytorch_metric_learning")
    example = Path(__file__).parents[1] / "docs/examples/metric_learning_loss.py"
    run = runpy.run_path(str(example), run_name="__main__")
    x, labels = drawn(0, dtype=torch.float32)
    assert run["RetrievalAPLoss"](epsilon=0.1)(x, labels) == loss(x, labels)
    assert "MAP@R" in capsys.readouterr().out
    assert run["value"] < 1


# ---- wrong versions ------------------------------------------------------------------------------


def by_hand(x, labels, mask, keep_query=False, detached=False, over_all=False, one_norm=False):
    """The loss by a graph through all pairs, with a mistake."""
    scale = torch.linalg.vector_norm(x, ord=1 if one_norm else 2, dim=1, keepdim=True)
    e = x / scale
    scores = e @ (e.detach() if detached else e).T
    same = labels.unsqueeze(1) == labels
    counts = mask & mask.unsqueeze(1) & (keep_query | ~torch.eye(len(x), dtype=torch.bool))
    losses = eg.direct_average_precision_loss(
        scores, same, mask=counts, epsilon=0.3, reduction="none"
    )
    live = (same & counts).any(1) & (~same & counts).any(1)
    return losses.sum() / (len(x) if over_all else live.sum())


def rejections(**mistake):
    count = 0
    for seed in range(30):
        wrong = lambda x, y, mask, **_: by_hand(x, y, mask, **mistake)  # noqa: E731
        try:
            check_meets_every_ranking(wrong, seed, "positive", "cosine")
        except AssertionError:
            count += 1
    return count


def test_the_right_version_passes():
    assert rejections() == 0


@pytest.mark.parametrize("mistake", ["keep_query", "detached", "over_all", "one_norm"])
def test_wrong_versions_are_rejected(mistake):
    """The query in its own list; a gradient for one side of a pair; void queries in the mean; other
    lengths.
    """
    assert rejections(**{mistake: True}) > 0


def test_the_share_of_positives_found_is_not_the_hit_rate():
    """Two things that are called recall@k."""
    oracle, (scores, target) = oracles_rankings.hit_rate, draw(0)
    with pytest.raises(AssertionError):
        check_meets_every_order(metrics.recall_at_k, oracle, scores, target, target, 2, k=2)
