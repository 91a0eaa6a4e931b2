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
    precision_score,
    recall_score,
    roc_auc_score,
)

from evalgrad import decisions, metrics
from evalgrad_lab.decisions import Decision, plain, thresholds
from evalgrad_lab.judging import choose, fitted, judge
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
    ("ranking", "sensitivity@specificity=0.6"): lambda: metrics.sensitivity_at_specificity(
        LINE, LABELS, specificity=0.6
    ),
    ("ranking", "auc@fpr=0.3"): lambda: roc_auc_score(LABELS, LINE, max_fpr=0.3),
    ("multilabel", "f1"): lambda: f1_score(MARKS, MANY > 0, average="macro"),
    ("multilabel", "auc"): lambda: roc_auc_score(MARKS, MANY, average="macro"),
    ("multilabel", "ap"): lambda: average_precision_score(MARKS, MANY, average="macro"),
    ("multilabel", "miou"): lambda: jaccard_score(MARKS, MANY > 0, average="macro"),
}
ARGMAX, AT_0 = Decision("argmax"), Decision("threshold", [0.0])
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
    rows = measured(measure, batches(task), [None])
    assert float(measure.value(rows[:, 0])) == pytest.approx(float(TRUTH[task, name]()))


def test_a_metric_over_ranks_is_that_of_the_whole():
    """Rank 0 has the even batches, rank 1 the odd ones."""
    expected = [float(truth()) for truth in TRUTH.values()]
    for values in ranks.run(2, _values_of_rank, list(TRUTH)):
        assert values == pytest.approx(expected)


def _values_of_rank(rank, world, names):
    found = []
    for task, name in names:
        own = [batch for i, batch in enumerate(batches(task)) if i % world == rank]
        classes = list("abcdef"[: NUMBER[task]])
        found.append(judge(find(name, task), own, classes, 255, None).value)
    return found


def test_a_judgement_has_the_confusion_of_scikit_learn_and_its_table():
    found = judge(find("miou", "segmentation"), batches("segmentation"), list("abc"), 255, ARGMAX)
    predicted, true = PIXELS[0].argmax(1), PIXELS[1]
    assert found.confusion == confusion_matrix(true, predicted).tolist()
    assert list(found.classes[0]) == ["class", "count", "precision", "recall", "f1", "iou"]
    rates = precision_recall_fscore_support(true, predicted)
    for key, values in zip(("precision", "recall", "f1", "count"), rates):
        assert [row[key] for row in found.classes] == pytest.approx(values.tolist())
    assert np.mean([row["iou"] for row in found.classes]) == pytest.approx(found.value)


def test_every_label_of_a_multilabel_task_is_judged_by_itself():
    metric = find("auc", "multilabel")
    found = judge(metric, batches("multilabel"), list("abc"), 255, AT_0)
    assert found.confusion == multilabel_confusion_matrix(MARKS, MANY > 0).tolist()
    areas = roc_auc_score(MARKS, MANY, average=None)
    assert [row["auc"] for row in found.classes] == pytest.approx(areas.tolist())
    recalls = recall_score(MARKS, MANY > 0, average=None)
    assert [row["recall"] for row in found.classes] == pytest.approx(recalls.tolist())


def test_a_class_without_items_has_no_rates_and_a_threshold_decides():
    scores, target = torch.tensor([0.4, 2.0, -1.0]), torch.tensor([0, 1, 0])
    metric = find("f1", "ranking")
    cut = Decision("threshold", [0.5])
    assert judge(metric, [(scores, target, None)], ["no", "yes"], 255, AT_0).value < 1
    assert judge(metric, [(scores, target, None)], ["no", "yes"], 255, cut).value == 1
    (row, _) = judge(metric, [(scores[1:2], target[1:2], None)], ["no", "yes"], 255, AT_0).classes
    assert (row["count"], row["recall"], row["precision"]) == (0, None, None)


def test_image_dice_is_the_mean_over_images_of_the_foreground():
    scores, target = torch.randn(5, 6, 6), torch.randint(2, (5, 6, 6))
    expected = [f1_score(t.flatten(), s.flatten() > 0) for s, t in zip(scores, target)]
    measure = find("image-dice", "segmentation").measure(2, 255)
    assert measure(scores, target) == pytest.approx(np.mean(expected))


def test_iou_and_accuracy_of_every_class():
    rows = measured(measure_of("segmentation", "miou"), batches("segmentation"), [None])[:, 0]
    seen = MAPS != 255
    for c, value in enumerate(measure_of("segmentation", "miou").per_class(rows)):
        hit, true = (SCORES.argmax(1) == c) & seen, (c == MAPS) & seen
        assert value == pytest.approx(float((hit & true).sum() / (hit | true).sum()))
    measure = measure_of("classification", "accuracy")
    rows = measured(measure, batches("classification"), [None])[:, 0]
    for c, value in enumerate(measure.per_class(rows)):
        right = (CLASS_SCORES.argmax(1) == c)[c == CLASSES]
        assert value == pytest.approx(float(right.double().mean()))


def best_of(metric, scored, of_one_score, classes=3):
    """What is chosen of all that may decide for a metric, and its value."""
    fits = metric.of_one if of_one_score else metric.of_classes
    tried = [plain(of_one_score), *fitted(fits, scored, 255)]
    return choose(metric.measure(classes, 255), scored, tried)


def test_no_threshold_is_better_than_the_chosen_one_and_0_wins_a_draw():
    target = (LINE > 0.7).long() | LABELS
    chosen, value = best_of(find("f1", "ranking"), [(LINE, target, None)], True, 2)
    assert value == pytest.approx(f1_score(target, chosen.numbers[0] < LINE))
    assert value == pytest.approx(max(f1_score(target, cut < LINE) for cut in [-9, *LINE[:-1]]))
    assert value > f1_score(target, LINE > 0)
    draw = [(LINE, (LINE > 0).long(), None)]
    assert best_of(find("f1", "ranking"), draw, True, 2)[0] == AT_0


@pytest.mark.parametrize(("name", "score"), [("f1", f1_score), ("miou", jaccard_score)])
def test_every_label_of_a_multilabel_task_has_the_threshold_that_is_best_for_it(name, score):
    chosen, value = best_of(find(name, "multilabel"), list(batches("multilabel")), True)
    pairs = [(MANY[:, c], MARKS[:, c]) for c in range(3)]
    best = [max(score(m, s > cut) for cut in [-9, *s]) for s, m in pairs]
    assert value == pytest.approx(np.mean(best))
    each = [score(m, s > cut) for (s, m), cut in zip(pairs, chosen.numbers, strict=True)]
    assert each == pytest.approx(best)


@pytest.mark.parametrize(
    ("name", "at_least", "best"),
    [
        ("precision@recall=0.7", recall_score, precision_score),
        ("recall@precision=0.7", precision_score, recall_score),
    ],
)
def test_an_operating_point_is_what_a_ranking_is_decided_by(name, at_least, best):
    target = ((LINE + torch.linspace(-1, 1, 60)) > 0).long()
    chosen, value = best_of(find(name, "ranking"), [(LINE, target, None)], True, 2)
    decided = chosen.numbers[0] < LINE
    assert at_least(target, decided) >= 0.7
    assert best(target, decided) == pytest.approx(value)
    # where no threshold reaches it, the decision is finite all the same: JSON has no infinity
    wrong = [(LINE, (LINE.sort().values[3] > LINE).long(), None)]
    chosen, _ = best_of(find("recall@precision=1", "ranking"), wrong, True, 2)
    assert not (chosen.numbers[0] < LINE).any()
    assert np.isfinite(chosen.numbers[0])


@pytest.mark.parametrize(
    ("task", "name"),
    [("segmentation", n) for n in ("miou", "image-miou", "dice", "f1")]
    + [("classification", "f1")],
)
def test_offsets_decide_where_they_are_better_than_argmax(task, name):
    """The scores of one class are too low by 2: offsets find that out, argmax does not."""
    dense = task == "segmentation"
    target = MAPS if dense else CLASSES
    count = NUMBER[task]
    marks = torch.nn.functional.one_hot(target.clamp(max=count - 1), count).float()
    scores = (marks.movedim(-1, 1) if dense else marks) + 0.3 * (SCORES if dense else CLASS_SCORES)
    scores[:, 1] -= 2
    metric = find(name, task)
    chosen, value = best_of(metric, [(scores, target, None)], False, count)
    measure = metric.measure(count, 255)
    assert chosen.rule == "class_offsets"
    assert value > measure(scores, target) + 0.1
    shifted = scores + torch.tensor(chosen.numbers).view(-1, *[1] * (2 * dense))
    assert value == pytest.approx(measure(shifted, target))
    scores[:, 1] += 2
    perfect = [(100 * scores, target, None)]
    right = marks.movedim(-1, 1) if dense else marks
    assert best_of(metric, [(right, target, None)], False, count)[0] == ARGMAX  # wins a draw
    assert best_of(metric, perfect, False, count)[1] >= measure(scores, target)


@pytest.mark.parametrize(
    ("name", "mask"),
    [("image-iou", decisions.jaccard_mask), ("image-dice", decisions.dice_mask)],
)
def test_masks_decide_where_images_differ_in_how_sure_they_are(name, mask):
    """Targets drawn from the probabilities of images that are hard or easy: one threshold does not
    serve both.
    """
    generator = torch.Generator().manual_seed(0)
    scores = (
        torch.randn(200, 6, 6, generator=generator)
        + torch.tensor([-2.0, 1.0]).repeat(100)[:, None, None]
    )
    target = (torch.rand(200, 6, 6, generator=generator) < scores.sigmoid()).long()
    metric = find(name, "segmentation")
    measure = metric.measure(2, 255)
    chosen, value = best_of(metric, [(scores, target, None)], True, 2)
    cuts = [0.0, *thresholds(scores, 20)]
    values = {cut: measure(scores, target, Decision("threshold", [cut])) for cut in cuts}
    assert chosen.rule == mask.__name__
    labels = mask(scores.sigmoid()).long()
    assert value == pytest.approx(measure(2.0 * labels - 1, target))
    assert value > max(values.values())
    assert values[chosen.numbers[0]] == max(values.values())  # the threshold that comes next


def test_a_network_that_diverged_is_decided_plainly():
    scores = torch.full((4, 3), torch.nan)
    chosen, value = best_of(find("f1", "classification"), [(scores, CLASSES[:4] % 3, None)], False)
    assert chosen == ARGMAX
    assert 0 <= value <= 1
    flat = torch.full((4,), torch.nan)
    assert best_of(find("f1", "ranking"), [(flat, LABELS[:4], None)], True, 2)[0] == AT_0


def test_binary_scores_are_decided_at_the_threshold():
    scores, target = torch.tensor([[[0.2, 0.6], [-1.0, 2.0]]]), torch.tensor([[[0, 1], [0, 1]]])
    measure = find("image-iou", "segmentation").measure(2, 255)
    assert measure(scores, target) == pytest.approx(2 / 3)
    assert measure(scores, target, Decision("threshold", [0.5])) == 1


def test_columns_are_rankings_of_their_own_and_a_network_that_diverged_has_0():
    measure = measure_of("ranking", "ap")
    scores, target = torch.randn(9, 3), torch.randint(2, (9, 3))
    expected = metrics.average_precision(scores.T, target.T)
    assert measure(scores, target) == pytest.approx(float(expected))
    assert measure(torch.full((4,), torch.nan), torch.tensor([0, 0, 0, 0])) == 0
