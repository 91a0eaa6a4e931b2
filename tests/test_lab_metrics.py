"""The metrics by name, over batches and over ranks, against the library's on the whole."""

import numpy as np
import pytest
import ranks
import torch
from sklearn.metrics import (
    average_precision_score,
    confusion_matrix,
    f1_score,
    jaccard_score,
    multilabel_confusion_matrix,
    precision_recall_fscore_support,
    recall_score,
    roc_auc_score,
)

from evalgrad import metrics
from evalgrad_lab.decisions import choose_threshold, judge, thresholds
from evalgrad_lab.measures import measured
from evalgrad_lab.metrics import find

torch.manual_seed(0)
SCORES, MAPS = torch.randn(7, 3, 5, 4), torch.randint(3, (7, 5, 4))
MAPS[2] = 255
CLASS_SCORES, CLASSES = torch.randn(30, 6), torch.randint(6, (30,))
LINE, LABELS, LISTS = torch.randn(60), torch.randint(2, (60,)), torch.arange(60) % 4


def by_list(function):
    parts = zip(*(values.view(15, 4).T for values in (LINE, LABELS)))  # item i is in list i % 4
    return torch.stack([function(scores, target) for scores, target in parts]).mean()


def macro(function, scores, target):
    """The mean over the classes of a function of each against the rest."""
    probabilities = scores.softmax(1)
    return np.mean([function(target == c, probabilities[:, c]) for c in range(scores.shape[1])])


PIXELS = SCORES.movedim(1, -1)[MAPS != 255], MAPS[MAPS != 255]
DECIDED = SCORES.argmax(1)
MANY, MARKS = torch.randn(40, 3), torch.randint(2, (40, 3))


def dice(predicted, true):
    """Of each class that is there, by counting."""
    pairs = [(predicted == c, true == c) for c in true.unique()]
    return np.mean([float(2 * (p & t).sum() / (p.sum() + t.sum())) for p, t in pairs])


TRUTH = {
    ("segmentation", "miou"): lambda: metrics.jaccard_index(
        DECIDED, MAPS, num_classes=3, ignore_index=255
    ),
    ("segmentation", "image-miou"): lambda: metrics.jaccard_index(
        DECIDED, MAPS, num_classes=3, ignore_index=255, over="image"
    ),
    ("segmentation", "dice"): lambda: dice(PIXELS[0].argmax(1), PIXELS[1]),
    ("segmentation", "f1"): lambda: f1_score(PIXELS[1], PIXELS[0].argmax(1), average="macro"),
    ("segmentation", "auc"): lambda: macro(roc_auc_score, *PIXELS),
    ("classification", "accuracy"): lambda: (CLASS_SCORES.argmax(1) == CLASSES).double().mean(),
    ("classification", "top2"): lambda: 1 - metrics.topk_error(CLASS_SCORES, CLASSES, k=2),
    ("classification", "f1"): lambda: f1_score(CLASSES, CLASS_SCORES.argmax(1), average="macro"),
    ("classification", "auc"): lambda: macro(roc_auc_score, CLASS_SCORES, CLASSES),
    ("ranking", "ap"): lambda: by_list(metrics.average_precision),
    ("ranking", "ndcg@3"): lambda: by_list(lambda s, t: metrics.ndcg(s, t, k=3)),
    ("ranking", "f1"): lambda: f1_score(LABELS, LINE > 0),
    ("ranking", "auc"): lambda: roc_auc_score(LABELS, LINE),
    ("ranking", "recall@precision=0.6"): lambda: metrics.recall_at_precision(
        LINE, LABELS, precision=0.6
    ),
    ("ranking", "precision@recall=.6"): lambda: metrics.precision_at_recall(
        LINE, LABELS, recall=0.6
    ),
    ("multilabel", "f1"): lambda: f1_score(MARKS, MANY > 0, average="macro"),
    ("multilabel", "auc"): lambda: roc_auc_score(MARKS, MANY, average="macro"),
    ("multilabel", "ap"): lambda: average_precision_score(MARKS, MANY, average="macro"),
    ("multilabel", "miou"): lambda: jaccard_score(MARKS, MANY > 0, average="macro"),
}
NUMBER = {"segmentation": 3, "classification": 6, "ranking": 2, "multilabel": 3}


def batches(task):
    if task == "segmentation":
        return zip(SCORES.split(2), MAPS.split(2), [None] * 4)
    if task == "classification":
        return zip(CLASS_SCORES.split(8), CLASSES.split(8), [None] * 4)
    if task == "multilabel":
        return zip(MANY.split(16), MARKS.split(16), [None] * 3)
    return zip(LINE.split(16), LABELS.split(16), LISTS.split(16))


def measure_of(task, name):
    return find(name, task).measure(NUMBER[task], 255)


@pytest.mark.parametrize(("task", "name"), TRUTH)
def test_a_metric_over_batches_is_that_of_the_whole(task, name):
    measure = measure_of(task, name)
    rows = measured(measure, batches(task))
    assert float(measure.value(rows)) == pytest.approx(float(TRUTH[task, name]()))


def test_a_metric_over_ranks_is_that_of_the_whole():
    """Rank 0 has the even batches, rank 1 the odd ones."""
    expected = [float(truth()) for truth in TRUTH.values()]
    for values in ranks.run(2, _values_of_rank, list(TRUTH)):
        assert values == pytest.approx(expected)


def _values_of_rank(rank, world, names):
    found = []
    for task, name in names:
        own = [batch for i, batch in enumerate(batches(task)) if i % world == rank]
        found.append(judge(find(name, task), own, list("abcdef"[: NUMBER[task]]), 255).value)
    return found


def test_a_judgement_has_the_confusion_of_scikit_learn_and_its_table():
    found = judge(find("miou", "segmentation"), batches("segmentation"), list("abc"), 255)
    predicted, true = PIXELS[0].argmax(1), PIXELS[1]
    assert found.confusion == confusion_matrix(true, predicted).tolist()
    assert list(found.classes[0]) == ["class", "count", "precision", "recall", "f1", "iou"]
    rates = precision_recall_fscore_support(true, predicted)
    for key, values in zip(("precision", "recall", "f1", "count"), rates):
        assert [row[key] for row in found.classes] == pytest.approx(values.tolist())
    assert np.mean([row["iou"] for row in found.classes]) == pytest.approx(found.value)


def test_every_label_of_a_multilabel_task_is_judged_by_itself():
    found = judge(find("auc", "multilabel"), batches("multilabel"), list("abc"), 255)
    assert found.confusion == multilabel_confusion_matrix(MARKS, MANY > 0).tolist()
    areas = roc_auc_score(MARKS, MANY, average=None)
    assert [row["auc"] for row in found.classes] == pytest.approx(areas.tolist())
    recalls = recall_score(MARKS, MANY > 0, average=None)
    assert [row["recall"] for row in found.classes] == pytest.approx(recalls.tolist())


def test_a_class_without_items_has_no_rates_and_a_threshold_decides():
    scores, target = torch.tensor([0.4, 2.0, -1.0]), torch.tensor([0, 1, 0])
    metric = find("f1", "ranking")
    assert judge(metric, [(scores, target, None)], ["no", "yes"], 255).value < 1
    assert judge(metric, [(scores, target, None)], ["no", "yes"], 255, 0.5).value == 1
    (row, _) = judge(metric, [(scores[1:2], target[1:2], None)], ["no", "yes"], 255).classes
    assert (row["count"], row["recall"], row["precision"]) == (0, None, None)


def test_image_dice_is_the_mean_over_images_of_the_foreground():
    scores, target = torch.randn(5, 6, 6), torch.randint(2, (5, 6, 6))
    expected = [f1_score(t.flatten(), s.flatten() > 0) for s, t in zip(scores, target)]
    measure = find("image-dice", "segmentation").measure(2, 255)
    assert measure(scores, target) == pytest.approx(np.mean(expected))


def test_iou_and_accuracy_of_every_class():
    rows = measured(measure_of("segmentation", "miou"), batches("segmentation"))
    seen = MAPS != 255
    for c, value in enumerate(measure_of("segmentation", "miou").per_class(rows)):
        hit, true = (SCORES.argmax(1) == c) & seen, (c == MAPS) & seen
        assert value == pytest.approx(float((hit & true).sum() / (hit | true).sum()))
    rows = measured(measure_of("classification", "accuracy"), batches("classification"))
    for c, value in enumerate(measure_of("classification", "accuracy").per_class(rows)):
        right = (CLASS_SCORES.argmax(1) == c)[c == CLASSES]
        assert value == pytest.approx(float(right.double().mean()))


def test_the_best_threshold_is_the_best_of_all_that_are_tried():
    measure, target = measure_of("ranking", "f1"), (LINE > 0.7).long()
    threshold, value = choose_threshold(measure, [(LINE, target, None)], LINE)
    tried = thresholds(LINE, 100)
    assert measure(LINE, target, threshold) == pytest.approx(value)
    assert value == pytest.approx(max(measure(LINE, target, cut) for cut in tried))
    assert measure(LINE, target, threshold) > measure(LINE, target)
    draw = [(LINE, (LINE > 0).long(), None)]
    assert choose_threshold(measure, draw, LINE)[0] == 0.0  # wins a draw


def test_binary_scores_are_decided_at_the_threshold():
    scores, target = torch.tensor([[[0.2, 0.6], [-1.0, 2.0]]]), torch.tensor([[[0, 1], [0, 1]]])
    measure = find("image-iou", "segmentation").measure(2, 255)
    assert measure(scores, target) == pytest.approx(2 / 3)
    assert measure(scores, target, 0.5) == 1


def test_columns_are_rankings_of_their_own_and_a_network_that_diverged_has_0():
    measure = measure_of("ranking", "ap")
    scores, target = torch.randn(9, 3), torch.randint(2, (9, 3))
    expected = metrics.average_precision(scores.T, target.T)
    assert measure(scores, target) == pytest.approx(float(expected))
    assert measure(torch.full((4,), torch.nan), torch.tensor([0, 0, 0, 0])) == 0
