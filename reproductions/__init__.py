"""The papers' experiments, one folder per paper; each holds `PAPER`. `python -m reproductions` runs
them; they use the lab and are no part of what is installed.
"""

import importlib

from evalgrad_lab.errors import UserError
from reproductions.experiment import Experiment, Paper

# A new paper is one more name here.
MODULES = ["lovasz", "loss_max_pooling", "s_measures", "direct_loss", "smooth_topk"]


def papers(modules: list[str] = MODULES) -> list[Paper]:
    """The papers of these modules, which are imported: a paper is not read to run another."""
    return [importlib.import_module(f"reproductions.{module}").PAPER for module in modules]


def find(names: list[str]) -> list[Experiment]:
    """The experiments called by name, by paper or by `all`, in the order of the papers."""
    named = {name.partition("/")[0] for name in names}
    modules = [module for module in MODULES if module in named] if named <= {*MODULES} else MODULES
    every = [experiment for paper in papers(modules) for experiment in paper.experiments]
    for name in names:
        if not any(_is_called(experiment, name) for experiment in every):
            known = ", ".join(experiment.name for experiment in every)
            raise UserError(f"`{name}` is neither a paper nor an experiment. Known: {known}.")
    return [one for one in every if any(_is_called(one, name) for name in names)]


def _is_called(experiment: Experiment, name: str) -> bool:
    return name in ("all", experiment.paper, experiment.name)
