"""The lab of evalgrad: train on the metric you are judged by, and compare it with tuned baselines.

Every command is a function of a dataclass of options: ``train(TrainOptions(...))``, `compare`,
`evaluate`, `predict`, `export`, `search`. The lab comes with the library but needs more than torch:
``pip install '.[lab]'`` in a clone.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalgrad_lab.commands.compare import CompareOptions, CompareResult, compare
    from evalgrad_lab.commands.evaluate import EvaluateOptions, EvaluateResult, evaluate
    from evalgrad_lab.commands.export import ExportOptions, ExportResult, export
    from evalgrad_lab.commands.predict import PredictOptions, PredictResult, predict
    from evalgrad_lab.commands.search import SearchOptions, search
    from evalgrad_lab.commands.train import TrainOptions, TrainResult, train

__all__ = [
    "CompareOptions",
    "CompareResult",
    "EvaluateOptions",
    "EvaluateResult",
    "ExportOptions",
    "ExportResult",
    "PredictOptions",
    "PredictResult",
    "SearchOptions",
    "TrainOptions",
    "TrainResult",
    "compare",
    "evaluate",
    "export",
    "predict",
    "search",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a command when it is asked for: torch and Lightning take seconds."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    command = name.removesuffix("Options").removesuffix("Result").lower()
    return getattr(importlib.import_module(f"evalgrad_lab.commands.{command}"), name)
