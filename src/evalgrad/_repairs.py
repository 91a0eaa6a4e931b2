"""What to do about a tensor that does not fit: the advice at the end of an error message.

Advice is right when followed. Where a tensor can mean two things, both are named, and the user
chooses; a test follows the advice of each (`tests/test_advice.py`).
"""

import math

from torch import Tensor

Shape = tuple[int, ...]

SOFT_TARGETS = "soft targets are for soft_jaccard_loss, soft_dice_loss and soft_tversky_loss"
GRADES = (
    "Graded labels are for `direct_graded_ndcg_loss` and `metrics.ndcg`; for other functions apply"
    " a threshold, e.g. `{argument} >= 2`."
)
ROUNDING = 1e-2  # of shares, in half precision or from an interpolation
MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}  # of F.interpolate, by axes


# ---- shapes --------------------------------------------------------------------------------------


def shape_repair(argument: str, x: Shape, beside: str, other: Shape) -> str:
    """For an argument of shape `x` that should have that of the tensor beside it."""
    labels = x[:1] + x[2:] if len(x) == len(other) and x[1:2] == (1,) else x  # without its channel
    repair = ""
    if argument == "mask":
        repair = _spread(x, beside, other)
    elif beside == "logits":
        repair = _one_map(labels, other) or _channels_last("logits", labels, other)
        repair = repair or _resize("logits", labels, other)
    elif beside == "prediction":
        repair = _best_class(labels, other)
    elif beside == "scores":
        repair = _class_scores(labels, other)
    elif argument == "labels" and x[:-1] == other:
        repair = "If they are one-hot, pass the class indices, `labels.int().argmax(-1)`."
    return repair or f"`{argument}` needs one entry per item."


def _spread(mask: Shape, beside: str, other: Shape) -> str:
    """For a mask with one entry for all of an axis."""
    if len(mask) == len(other) and all(m in (1, n) for m, n in zip(mask, other, strict=True)):
        return f"Expand it: `mask.expand_as({beside})`."
    for axis in (1, -1, 0):
        if mask == _without(other, axis):
            return f"Expand it: `mask.unsqueeze({axis}).expand_as({beside})`."
    return ""


def _one_map(labels: Shape, logits: Shape) -> str:
    if labels != _without(logits, 1):
        return ""
    return (
        f"There are {logits[1]} channels but one label map: use a multi-class loss, e.g."
        " lovasz_softmax_loss, or pass one label map per channel."
    )


def _channels_last(name: str, labels: Shape, scores: Shape) -> str:
    if len(scores) < 3 or labels != scores[:-1]:
        return ""
    return (
        f"The channels are in the last dimension: move them to dim 1 with `{name}.movedim(-1, 1)`."
    )


def _resize(name: str, labels: Shape, logits: Shape) -> str:
    """Of maps of two sizes the logits are brought to the labels, which are the truth."""
    given = name
    if len(labels) == len(logits) - 1:  # (N, *) beside (N, C, *)
        size, old = labels[1:], logits[2:]
    elif labels[1:2] == logits[1:2]:  # (N, C, *) both
        size, old = labels[2:], logits[2:]
    else:  # (N, *) both, which F.interpolate takes with a channel
        given, size, old = f"{name}.unsqueeze(1)", labels[1:], logits[1:]
        if any(a == b for a, b in zip(size, old, strict=False)):
            return ""  # an axis of one size, another of two: not a matter of resolution
    if labels[:1] != logits[:1] or len(size) != len(old) or size == old or len(size) not in MODES:
        return ""
    return (
        f"Resize the {name} to the labels: `F.interpolate({given}, size={size},"
        f' mode="{MODES[len(size)]}")`.'
    )


def _best_class(target: Shape, prediction: Shape) -> str:
    for axis in (1, -1):
        if target == _without(prediction, axis):
            return f"If these are scores, pass the best class: `prediction.argmax({axis})`."
    if target[:1] == prediction[:1] and len(target) == len(prediction) > 1:
        return f"Resize the scores to {target[1:]} before taking the argmax."
    return ""


def _class_scores(target: Shape, scores: Shape) -> str:
    """For lists of binary labels."""
    if target != _without(scores, -1):
        return _class_maps(target, scores)
    if scores[-1] == 2:
        return "For scores of two classes pass their difference, `scores[..., 1] - scores[..., 0]`."
    if len(scores) > 2:
        return ""
    return (
        f"For scores of {scores[1]} classes rank the samples per class: pass the target"
        f" `F.one_hot(target.long(), {scores[1]})` and dim=0."
    )


def _class_maps(target: Shape, scores: Shape) -> str:
    """For binary labels of every channel, as the IoU of several classes takes them."""
    if len(scores) < 3 or target != _without(scores, 1):
        return ""
    return (
        f"There are {scores[1]} channels but one label map: pass one per channel, for class indices"
        f" `F.one_hot(target.long(), {scores[1]}).movedim(-1, 1)`."
    )


def _without(shape: Shape, axis: int) -> Shape | None:
    """The shape without an axis; None if it has too few."""
    if len(shape) < 2:
        return None
    axis %= len(shape)
    return shape[:axis] + shape[axis + 1 :]


# ---- class indices -------------------------------------------------------------------------------


def few_classes_repair(name: str, classes: int, has_mode: bool = False) -> str:
    """For scores of one class, or none; `has_mode`: the loss itself has a binary mode."""
    if not classes:
        return "Put the classes in dim 1."
    if name == "scores":
        return "Put the classes in dim 1; there must be at least two."
    if has_mode:
        return 'For one channel pass mode="binary".'
    return "For one channel use lovasz_hinge_loss or another binary loss, which takes (N, *)."


def mode_repair(target: Tensor, scores: Shape, mode: str) -> tuple[type[Exception], str] | None:
    """For a target of a loss with modes that is neither class indices nor labels as `mode` takes
    them, with the kind of error; None where the advice for labels holds.
    """
    if len(scores) < 2:  # without an axis of classes
        return None
    shape = tuple(target.shape)
    one_map = _without(scores, 1) in (shape, _without(shape, 1) if shape[1:2] == (1,) else None)
    if mode != "multiclass":
        several = 'For class indices pass mode="multiclass"; otherwise pass one map per channel.'
        return (ValueError, several) if one_map and scores[1] > 1 else None
    if one_map and target.is_floating_point():
        give = "Convert class indices with `target.long()`; soft labels need one entry per class."
        return TypeError, give
    if len(scores) > 2 and shape == (*scores[:1], *scores[2:], scores[1]):
        move = "The classes are in the last dimension: move them to dim 1, `target.movedim(-1, 1)`."
        return ValueError, move
    return None


def class_target_repair(target: Tensor, beside: str, scores: Shape, read: bool) -> str:
    """For a target that should have the shape of the scores without their classes; `read`: its
    values may be looked at.
    """
    shape = tuple(target.shape)
    if shape == scores:
        return _class_axis_repair(target, beside, read)
    if len(scores) > 2 and shape == (*scores[:1], *scores[2:], scores[1]):
        return "If it is one-hot, pass the class indices, `target.int().argmax(-1)`."
    labels = shape[:1] + shape[2:] if len(shape) == len(scores) and shape[1:2] == (1,) else shape
    if len(scores) == 1:
        return "The label of one sample is a tensor of shape (), e.g. `torch.tensor(3)`."
    return (
        _channels_last(beside, labels, scores)
        or _resize(beside, labels, scores)
        or f"Labels have the shape of the {beside} without dim 1."
    )


def _class_axis_repair(target: Tensor, beside: str, read: bool) -> str:
    """For a target of the very shape of the scores."""
    axis = min(target.ndim - 1, 1)
    indices = f"pass the class indices, `target.int().argmax({axis})`"
    if not read:
        return f"If it is one-hot, {indices}."
    if _is_one_hot(target, axis):
        return f"It is one-hot: {indices}."
    if target.ndim > 2 and _is_one_hot(target, -1):
        return (
            "It is one-hot with the classes in the last dimension: pass `target.int().argmax(-1)`"
            f" and `{beside}.movedim(-1, 1)`."
        )
    if bool(((target != 0) & (target != 1)).any()):
        return f"It is not one-hot; {SOFT_TARGETS}."
    several = (
        "lovasz_hinge_loss(per_class=True)" if beside == "logits" else "a ranking loss with dim=0"
    )
    return f"It is not one-hot. If an item can have several classes, use {several}."


def _is_one_hot(target: Tensor, axis: int) -> bool:
    binary = (target == 0) | (target == 1)
    return bool(binary.all() and ((target == 1).sum(axis) == 1).all())


def class_label_repair(
    argument: str, values: list[int], num_classes: int, leave_out: str, more: str
) -> tuple[int, str]:
    """A label that is no class, of the different ones that there are in order, and its repair.

    `leave_out` and `more` say how the caller leaves items out, and has more classes.
    """
    wrong = values[0] if values[0] < 0 else values[-1]
    left_out = f"marks items to ignore, {leave_out.format(value=wrong)}"
    binary = f"pass `({argument} > 0).long()`"
    if num_classes == 2 and values == [-1, 1]:
        return wrong, f"The labels are -1 and 1: {binary}."
    if num_classes == 2 and values == [-1]:
        return wrong, f"If -1 {left_out}; if the labels are -1 and 1, {binary}."
    if wrong < 0:
        return wrong, f"If {wrong} {left_out}."
    if num_classes == 2 and {*values} <= {0, wrong}:
        return wrong, f"If {wrong} is one of two classes, {binary}; if it {left_out}."
    return wrong, f"If {wrong} {left_out}; if it is a class, {more.format(number=wrong + 1)}."


# ---- labels 0 and 1 ------------------------------------------------------------------------------


def share_repair(values: list[float], leave_out: str) -> tuple[float, str]:
    """A number that is no share, of the different ones that there are in order, and its repair."""
    wrong = next(x for x in reversed(values) if not 0 <= x <= 1)  # sorted: NaN is the last
    if math.isnan(wrong):
        return wrong, "Mask the items without a label: pass `mask=~target.isnan()`."
    if values[0] >= -ROUNDING and values[-1] <= 1 + ROUNDING:
        return wrong, "This is rounding: pass `target.clamp(0, 1)`."
    whole = f"If they have another scale, divide by it, e.g. `target / {wrong:g}`."
    if not any(x % 1 for x in values):
        return binary_label_repair("target", values, leave_out, whole)
    if not wrong % 1:
        return (
            wrong,
            f"If {wrong:g} marks items to ignore, {leave_out.format(value=int(wrong))}.",
        )
    scores = "If these are scores, apply softmax or sigmoid first."
    return wrong, scores if values[0] < 0 else f"{scores} {whole}"


def binary_label_repair(
    argument: str, values: list[float], leave_out: str, grades: str = GRADES
) -> tuple[float, str]:
    """A label other than 0 and 1, of the different ones that there are in order, and its repair;
    `grades` is the advice for several of them.
    """
    fractions = [value for value in values if value % 1]  # NaN and infinity too
    wrong = next(iter(fractions), values[0] if values[0] < 0 else values[-1])
    if argument == "mask":
        return wrong, "True means that an item is kept; compare explicitly, e.g. `mask > 0`."
    if fractions and argument == "prediction":
        shares = 0 <= values[0] <= values[-1] <= 1
        return (
            wrong,
            f"If these are scores, apply a threshold: `prediction > {0.5 if shares else 0}`.",
        )
    if fractions:
        return wrong, (
            'Use a loss for soft labels, e.g. soft_dice_loss(mode="binary"), or apply a threshold,'
            f" e.g. `{argument} > 0.5`."
        )
    left_out = f"marks items to ignore, {leave_out.format(value=int(wrong))}"
    if values == [-1, 1]:
        return wrong, f"The labels are -1 and 1: pass `{argument} > 0`."
    if values == [-1]:
        return wrong, f"If -1 {left_out}; if the labels are -1 and 1, pass `{argument} > 0`."
    if wrong < 0:
        return wrong, f"If {wrong} {left_out}."
    if {*values} <= {0, wrong}:
        return wrong, f"If {wrong} means positive, pass `{argument} > 0`; if it {left_out}."
    return wrong, f"If {wrong} {left_out}. {grades.format(argument=argument)}"
