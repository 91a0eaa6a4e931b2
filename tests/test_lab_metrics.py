"""The metrics by name, over batches and over ranks, against the library's on the whole."""

import pytest
import ranks
import torch

from evalgrad import metrics
from evalgrad_lab.errors import UserError
from evalgrad_lab.metrics import TASKS, best_threshold, find, measured, thresholds

torch.manual_seed(0)
SCORES, MAPS = torch.randn(7, 3, 5, 4), torch.randint(3, (7, 5, 4))
MAPS[2] = 255
CLASS_SCORES, CLASSES = torch.randn(30, 6), torch.randint(6, (30,))
LINE, LABELS, LISTS = torch.randn(60), torch.randint(2, (60,)), torch.arange(60) % 4


def by_list(function):
    parts = zip(*(values.view(15, 4).T for values in (LINE, LABELS)))  # item i is in list i % 4
    return torch.stack([function(scores, target) for scores, target in parts]).mean()


TRUTH = {
    "miou": lambda: metrics.jaccard_index(SCORES.argmax(1), MAPS, num_classes=3, ignore_index=255),
    "image-miou": lambda: metrics.jaccard_index(
        SCORES.argmax(1), MAPS, num_classes=3, ignore_index=255, over="image"
    ),
    "accuracy": lambda: (CLASS_SCORES.argmax(1) == CLASSES).double().mean(),
    "top2": lambda: 1 - metrics.topk_error(CLASS_SCORES, CLASSES, k=2),
    "ap": lambda: by_list(metrics.average_precision),
    "ndcg@3": lambda: by_list(lambda s, t: metrics.ndcg(s, t, k=3)),
    "f1": lambda: metrics.fbeta_score(LINE, LABELS),
    "recall@precision=0.6": lambda: metrics.recall_at_precision(LINE, LABELS, precision=0.6),
    "precision@recall=.6": lambda: metrics.precision_at_recall(LINE, LABELS, recall=0.6),
}


def batches(task):
    if task == "segmentation":
        return zip(SCORES.split(2), MAPS.split(2), [None] * 4)
    if task == "classification":
        return zip(CLASS_SCORES.split(8), CLASSES.split(8), [None] * 4)
    return zip(LINE.split(16), LABELS.split(16), LISTS.split(16))


def task_of(name):
    (task,) = [task for task in TASKS if _is_of(name, task)]
    return task


def measure_of(name):
    task = task_of(name)
    classes = {"segmentation": 3, "classification": 6, "ranking": 2}[task]
    return find(name, task).measure(classes, 255)


@pytest.mark.parametrize("name", TRUTH)
def test_a_metric_over_batches_is_that_of_the_whole(name):
    measure = measure_of(name)
    rows = measured(measure, batches(task_of(name)))
    assert float(measure.value(rows)) == pytest.approx(float(TRUTH[name]()))


@pytest.mark.parametrize("name", TRUTH)
def test_a_metric_over_ranks_is_that_of_the_whole(name):
    """Rank 0 has the even batches, rank 1 the odd ones."""
    values = ranks.run(2, _value_of_rank, name)
    assert values == pytest.approx([float(TRUTH[name]())] * 2)


def _value_of_rank(rank, world, name):
    torch.manual_seed(0)
    measure = measure_of(name)
    own = [batch for i, batch in enumerate(batches(task_of(name))) if i % world == rank]
    return float(measure.value(measured(measure, own)))


def test_iou_and_accuracy_of_every_class():
    rows = measured(measure_of("miou"), batches("segmentation"))
    seen = MAPS != 255
    for c, value in enumerate(measure_of("miou").per_class(rows)):
        hit, true = (SCORES.argmax(1) == c) & seen, (c == MAPS) & seen
        assert value == pytest.approx(float((hit & true).sum() / (hit | true).sum()))
    rows = measured(measure_of("accuracy"), batches("classification"))
    for c, value in enumerate(measure_of("accuracy").per_class(rows)):
        right = (CLASS_SCORES.argmax(1) == c)[c == CLASSES]
        assert value == pytest.approx(float(right.double().mean()))


def test_the_best_threshold_is_the_best_of_all_that_are_tried():
    measure, target = measure_of("f1"), (LINE > 0.7).long()
    threshold = best_threshold(measure, LINE, target)
    tried = thresholds(LINE, 100)
    assert measure(LINE, target, threshold) == max(measure(LINE, target, cut) for cut in tried)
    assert measure(LINE, target, threshold) > measure(LINE, target)
    assert best_threshold(measure, LINE, (LINE > 0).long()) == 0.0  # wins a draw


def test_binary_scores_are_decided_at_the_threshold():
    scores, target = torch.tensor([[[0.2, 0.6], [-1.0, 2.0]]]), torch.tensor([[[0, 1], [0, 1]]])
    measure = find("image-iou", "segmentation").measure(2, 255)
    assert measure(scores, target) == pytest.approx(2 / 3)
    assert measure(scores, target, 0.5) == 1


def test_columns_are_rankings_of_their_own_and_a_network_that_diverged_has_0():
    measure = measure_of("ap")
    scores, target = torch.randn(9, 3), torch.randint(2, (9, 3))
    expected = metrics.average_precision(scores.T, target.T)
    assert measure(scores, target) == pytest.approx(float(expected))
    assert measure(torch.full((4,), torch.nan), torch.tensor([0, 0, 0, 0])) == 0


def _is_of(name, task):
    try:
        return find(name, task) is not None
    except UserError:
        return False
