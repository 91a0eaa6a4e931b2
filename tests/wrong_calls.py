"""Right calls of all public names, and what makes them wrong: one argument at a time is replaced by
something that it cannot be. `test_wrong_calls.py` makes all of them.
"""

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from cases import CASES
from torch import Tensor
from torch.utils.data import DistributedSampler

import evalgrad as eg
from evalgrad import decisions, distributed, metrics

_generator = torch.Generator().manual_seed(0)
MAPS = torch.randn(3, 4, 5, generator=_generator)
LABELS = torch.randint(4, (3, 5), generator=_generator)
LISTS = torch.randn(3, 6, generator=_generator)
MARKS = torch.tensor([[1, 0, 1, 0, 0, 1]] * 3)
ROWS = torch.randn(6, 8, generator=_generator)
CLASSES = torch.randint(8, (6,), generator=_generator)
SAMPLER = DistributedSampler(range(10), num_replicas=4, rank=0)  # type: ignore[arg-type]
PRESENCE = torch.tensor([[True, False], [True, True], [False, True]])

MAPPED = {"logits": MAPS, "target": LABELS}
BINARY = {"logits": LISTS, "target": MARKS}
LISTED = {"scores": LISTS, "target": MARKS}
GUESSED = {"scores": ROWS, "target": CLASSES, "k": 2}
RAISED = {"errors": LISTS, "foreground": MARKS > 0}
EMBEDDED = {"embeddings": ROWS, "labels": CLASSES % 2}
OVERLAPPED = {"prediction": LABELS, "target": LABELS, "num_classes": 4}
FIRST = {**LISTED, "k": 2}
COUNTED = {"counts": torch.tensor([[[1, 2, 3], [2, 3, 4]]])}
TVERSKY = {"misses": 0.7, "false_alarms": 0.3}
OF_MEASURES = {
    "solver": "ratio",
    "surrogate": "hinge",
    "average": "micro",
    "ignore_index": 255,
    "dual_lr": 0.1,
}


def _of_losses() -> dict[str, dict[str, Any]]:
    """The losses that are modules too, on what their rows in cases.py draw: by their own names, and
    a further row of the same loss by the row's.
    """
    calls: dict[str, dict[str, Any]] = {}
    generator = torch.Generator().manual_seed(0)
    for case in CASES:
        function = getattr(case.module, "function", None)
        if function is not None:
            tensors = case.arrange(*case.draw(generator))
            name = function.__name__
            key = f"{name}:{case.name}" if name in calls else name
            calls[key] = dict(zip(function.arguments, tensors, strict=False)) | case.fixed
    return calls


# What each public name is called with, in a mode if one is named; functions as they are, classes to
# be made.
RIGHT: dict[str, dict[str, Any]] = _of_losses() | {
    "jaccard_lovasz_extension": RAISED,
    "lovasz_prox": {**RAISED, "lam": 1.0},
    "loss_max_pooling": {"losses": LISTS.abs()},
    "loss_max_pooling_weights": {"losses": LISTS.abs()},
    "topk_predict": {"scores": ROWS, "k": 2},
    "topk_probabilities": {"scores": ROWS, "k": 2},
    "log_elementary_symmetric": {"x": ROWS, "k": 2},
    "suggest_epsilon": LISTED,
    "focal_loss:multilabel": {**BINARY, "mode": "multilabel"},
    "class_presence": {"dataset": [(None, LABELS)], "num_classes": 4, "progress": False},
    "inverse_frequency_weights": {"targets": LABELS, "num_classes": 4},
    "median_frequency_weights": {"targets": LABELS, "num_classes": 4},
    "majority_size_labels": {"target": LABELS, "classes": 4},
    "project_onto_ceiling": {"tau": LISTS, "epsilon": LISTS[:, 0]},
    "FBeta": OF_MEASURES,
    "PrecisionAtRecall": {"recall": 0.8, **OF_MEASURES},
    "RecallAtPrecision": {"precision": 0.8, **OF_MEASURES},
    "SensitivityAtSpecificity": {"specificity": 0.8, **OF_MEASURES},
    "ROCAUC": OF_MEASURES,
    "PRAUC": OF_MEASURES,
    "PartialROCAUC": {"max_fpr": 0.5, **OF_MEASURES},
    "SizeHead": {"in_features": 4},
    "BootstrappedCrossEntropy": {},
    "LossMaxPooling": {"criterion": torch.nn.BCEWithLogitsLoss(reduction="none")},
    "EquibatchSampler": {"presence": PRESENCE},
    "PerformanceSampler": {"presence": PRESENCE},
    "metrics.average_precision": LISTED,
    "metrics.ndcg": FIRST,
    "metrics.precision_at_k": FIRST,
    "metrics.recall_at_k": FIRST,
    "metrics.hit_rate_at_k": FIRST,
    "metrics.reciprocal_rank": LISTED,
    "metrics.r_precision": LISTED,
    "metrics.map_at_r": LISTED,
    "metrics.retrieval_lists": EMBEDDED,
    "metrics.fbeta_score": {"scores": LISTS[0], "target": MARKS[0]},
    "metrics.precision_at_recall": {**LISTED, "recall": 0.5},
    "metrics.recall_at_precision": {**LISTED, "precision": 0.5},
    "metrics.sensitivity_at_specificity": {**LISTED, "specificity": 0.5},
    "metrics.partial_roc_auc": {**LISTED, "max_fpr": 0.5},
    "metrics.roc_auc": LISTED,
    "metrics.pr_auc": LISTED,
    "metrics.topk_error": GUESSED,
    "metrics.jaccard_index": OVERLAPPED,
    "metrics.dice": OVERLAPPED,
    "metrics.jaccard_counts": OVERLAPPED,
    "metrics.tversky_index": {**OVERLAPPED, **TVERSKY},
    "metrics.jaccard_from_counts": COUNTED,
    "metrics.tversky_from_counts": {**COUNTED, **TVERSKY},
    "distributed.gather_batch": {"x": ROWS},
    "distributed.global_batch": {"loss": eg.LovaszSoftmaxLoss()},
    "distributed.CrossBatchMemory": {"capacity": 4},
    "distributed.CrossBatchMemory:forward": LISTED,
    "distributed.micro_batch_backward": {
        **{"model": torch.nn.Linear(8, 1), "inputs": ROWS, "loss": torch.Tensor.sum, "size": 2}
    },
    "distributed.sampler_padding": {"sampler": SAMPLER, "start": 0, "count": 2},
    "decisions.best_threshold": LISTED,
    "decisions.class_offsets": MAPPED,
    "decisions.jaccard_mask": {"probabilities": LISTS.sigmoid()},
    "decisions.dice_mask": {"probabilities": LISTS.sigmoid()},
    "decisions.dataset_jaccard_labels": {"probabilities": MAPS.softmax(1)},
    "decisions.greedy_jaccard_labels": {"probabilities": MAPS.softmax(1)},
}
MODULES = {
    **{"evalgrad": eg, "metrics": metrics, "decisions": decisions},
    "distributed": distributed,
}


def found(name: str) -> Callable[..., Any]:
    """The public name; after ":" a mode, or the call of a module that is made already."""
    if name == "distributed.CrossBatchMemory:forward":
        return distributed.CrossBatchMemory(4, lists=(3,)).forward
    module, _, own = name.partition(":")[0].rpartition(".")
    return getattr(MODULES[module or "evalgrad"], own)


@dataclass(frozen=True)
class Wrong:
    """A call with one argument that cannot be."""

    name: str
    argument: str
    kind: str  # what it is instead
    value: Any

    def __call__(self) -> Any:
        return found(self.name)(**{**RIGHT.get(self.name, {}), self.argument: self.value})

    def __str__(self) -> str:
        return f"{self.name}({self.argument}={self.kind})"


class Nothing:
    """An object that can be nothing."""

    def __repr__(self) -> str:
        return "nothing"


def _tensors(like: Tensor) -> dict[str, Any]:
    """Tensors of the shape of a right one, but of a kind that no loss takes."""
    ragged = [LISTS[0], LISTS[1, :3]]
    nested = torch.nested.as_nested_tensor(ragged, layout=torch.strided)
    quantized = torch.quantize_per_tensor(like.float(), 0.5, 0, torch.quint8)
    values = {"complex": like.to(torch.complex64), "sparse": like.to_sparse(), "nested": nested}
    values["quantized"] = quantized
    if like.is_floating_point():  # labels of 0 and 1 may be floats of any kind
        values["float8"] = like.to(torch.float8_e4m3fn)
    return {**NO_TENSORS, **values}


ANYTHING = {"object": Nothing(), "dict": {"a": 1}}
NO_TENSORS = {**ANYTHING, "None": None, "text": "text", "number": 3.5}
INTEGERS = {**ANYTHING, "text": "2", "real": 2.5, "nan": math.nan, "list": [[2]]}
REALS = {**ANYTHING, "text": "x", "nan": math.nan, "list": [[1.0]], "complex": 1j}
WORDS = {**ANYTHING, "other": "nonsense", "number": 3}
FLAGS = {**ANYTHING, "text": "yes", "number": 2}
SEQUENCES = {**ANYTHING, "text": "text", "nan": math.nan}
CALLABLES = {**ANYTHING, "text": "text", "number": 3, "None": None}
LARGE = {"large": 2**63, "larger": 2**70}


def _wrong_values(parameter: inspect.Parameter, given: Any) -> dict[str, Any]:
    """What this argument cannot be, by its annotation."""
    hint = str(parameter.annotation)
    if parameter.name == "threshold" and "Tensor" in hint:
        values = {**ANYTHING, "text": "text", "None": None, "nan": math.nan}
    elif "Callable" in hint:
        values = CALLABLES
    elif "Literal" in hint and "Sequence" not in hint:
        values = WORDS
    elif "bool" in hint:
        values = FLAGS
    elif "Tensor" in hint and "Sequence" not in hint and "Iterable" not in hint:
        values = NO_TENSORS if given is None else _tensors(given)
    elif "Sequence" in hint or "Iterable" in hint or "Any" in hint:
        values = SEQUENCES
    elif "float" in hint:
        values = REALS
    elif "int" in hint:
        values = INTEGERS if parameter.name == "ignore_index" else {**INTEGERS, **LARGE}
    else:
        values = ANYTHING
    if hint in ("int", "float"):
        values = {**values, "None": None}
    if parameter.name == "zero_division":  # NaN leaves it out of the mean
        values = {kind: value for kind, value in values.items() if kind != "nan"}
    return {kind: value for kind, value in values.items() if value is not parameter.default}


def meta_calls(name: str) -> Iterator[Wrong]:
    """One for each tensor of the right call: without its values."""
    for argument, given in RIGHT.get(name, {}).items():
        if isinstance(given, Tensor):
            yield Wrong(name, argument, "meta", given.to("meta"))


ANY_DTYPE = ("distributed.gather_batch", "distributed.micro_batch_backward")
NAMES = sorted({*RIGHT, *(name for name in vars(eg) if name.endswith("Loss"))})


def wrong_calls(name: str) -> Iterator[Wrong]:
    """One for each argument of a public name and each thing that the argument cannot be."""
    right = RIGHT.get(name, {})
    for parameter in inspect.signature(found(name)).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            every = [(option, ANYTHING) for option in OF_MEASURES]
        else:
            values = _wrong_values(parameter, right.get(parameter.name))
            if name in ANY_DTYPE:
                values = {
                    kind: values[kind] for kind in values if kind not in ("complex", "float8")
                }
            every = [(parameter.name, values)]
        for argument, values in every:
            yield from (Wrong(name, argument, kind, values[kind]) for kind in values)
