"""Every experiment of every paper runs at its tiny size, gives plain data, and judges it."""

import importlib
import json

import pytest

import reproductions
from evalgrad_lab.data.fetched import NotFetchedError
from evalgrad_lab.runs import Runs, modules_behind
from evalgrad_lab.store import Store
from reproductions.sizes import SkippedError

SEGMENTATIONS = {
    *(f"lovasz/{table}" for table in ("table-1", "table-a1", "table-a2", "table-2")),
    *(f"loss_max_pooling/{item}" for item in ("table-2", "figure-3", "figure-4")),
    *("lovasz/figure-6", "lovasz/table-b2", "s_measures/experiment-2", "s_measures/experiment-3"),
}
LOOKED_AT = ("lovasz/figure-6", "loss_max_pooling/figure-4")  # during the training
EXPERIMENTS = [experiment for paper in reproductions.papers() for experiment in paper.experiments]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_experiment_runs_at_tiny_size(experiment, tmp_path):
    try:
        outcome = experiment.run("tiny", Runs(Store(tmp_path)))
    except (SkippedError, NotFetchedError) as reason:
        pytest.skip(str(reason))
    assert json.loads(json.dumps(outcome.numbers))
    assert outcome.tables or outcome.figures
    for table in outcome.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}
    claims = experiment.judge(outcome.numbers)
    assert claims
    for claim in claims:
        assert len(experiment.claims(outcome).rows[0]) == len(claim.cells()) == 5
        if claim.seeds == "1":
            assert claim.verdict in ("undecided", "not testable here")
    if experiment.name in LOOKED_AT:
        (late,) = [i for i, name in enumerate(outcome.tables[0].columns) if "last three" in name]
        assert all(
            "±" in row[late] for row in outcome.tables[0].rows if row[0] in ("Lovász", "LMP")
        )
    if experiment.name in SEGMENTATIONS:
        for table in outcome.tables:
            named = [*table.columns, *(row[0] for row in table.rows)]
            assert any("constant" in str(name) for name in named)


def test_names_are_unique_and_belong_to_their_paper():
    names = [experiment.name for experiment in EXPERIMENTS]
    assert len(names) == len(set(names))
    for paper in reproductions.papers():
        assert {experiment.paper for experiment in paper.experiments} == {paper.name}


@pytest.mark.parametrize(
    "name",
    [
        *("bases", "training", "loss_max_pooling.training", "loss_max_pooling.likeness"),
        *(f"lovasz.{pieces}_pieces" for pieces in ("binary", "brain", "enet", "per_class", "prox")),
        *("lovasz.scenes_pieces", "s_measures.training", "s_measures.mask_training"),
        *("smooth_topk.training", "smooth_topk.cost_pieces"),
        *("direct_loss.training", "direct_loss.class_training"),
    ],
)
def test_a_change_in_the_verdicts_voids_no_finished_run(name):
    behind = modules_behind(importlib.import_module(f"reproductions.{name}"))
    assert "reproductions.claims" not in {module.__name__ for module in behind}
