"""The papers' experiments, one module or folder per paper; each holds `PAPER`. `evalgrad reproduce`
runs them.
"""

import importlib

from evalgrad.lab.errors import UserError
from evalgrad.lab.papers.experiment import Experiment, Paper

# A new paper is one more name here.
MODULES = ["lovasz", "loss_max_pooling", "s_measures", "direct_loss", "smooth_topk"]


def papers() -> list[Paper]:
    """All papers, in the order of `MODULES`."""
    return [importlib.import_module(f"evalgrad.lab.papers.{module}").PAPER for module in MODULES]


def find(names: list[str]) -> list[Experiment]:
    """The experiments called by name, by paper (`smooth_topk`) or by `all`, each once and in the
    order of the papers.
    """
    every = [experiment for paper in papers() for experiment in paper.experiments]
    for name in names:
        if not any(_is_called(experiment, name) for experiment in every):
            known = ", ".join(experiment.name for experiment in every)
            raise UserError(f"`{name}` is neither a paper nor an experiment. Known: {known}.")
    return [
        experiment for experiment in every if any(_is_called(experiment, name) for name in names)
    ]


def _is_called(experiment: Experiment, name: str) -> bool:
    return name in ("all", experiment.paper, experiment.name)
