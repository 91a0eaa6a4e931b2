"""The ladder: its files, what a row says of a comparison, and its sums."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from training_data import table

from evalgrad_lab.data.dataset import Reading
from evalgrad_lab.data.fetched import NotFetchedError
from evalgrad_lab.data.files.read import read
from evalgrad_lab.report.panels import Difference, paired_difference
from reproductions.ladder import __main__ as ladder
from reproductions.ladder.arrays import camvid
from reproductions.ladder.rungs import RUNGS, Rung, write

EMBEDDED = ("scenes", "strokes", "noisy-digit", "digit", "digit-pairs")


@pytest.mark.parametrize("name", EMBEDDED)
def test_a_rung_is_written_as_a_user_would(tmp_path, name):
    (rung,) = (rung for rung in RUNGS if rung.name == name)
    path = write(rung, tmp_path)
    found = read(path, Reading(rung.task))
    assert len(found.train) >= 600
    assert len(found.classes) >= 2
    before = path.stat().st_mtime_ns
    assert write(rung, tmp_path).stat().st_mtime_ns == before  # once


def arrays():
    x, target, _ = table(count=300)
    return {"inputs": x.astype(np.float32), "target": target}


def control_trial(*, options, seed, **_):
    """Stands for a training of the control."""
    assert (options["loss"], options["loss_options"]) == ("auto", {"share": 0.0})
    return {"seed": seed, "test": {"AP": 0.25}}


@pytest.mark.parametrize("taken", [False, True])
def test_a_task_is_climbed(tmp_path, monkeypatch, taken):
    line_of, plain = ladder.line_of, {"positive_weight": 1.0}
    planted = lambda *given: replace(line_of(*given), gains=[(0.1, 0.1)] * taken)  # noqa: E731
    monkeypatch.setattr(ladder, "line_of", planted)
    monkeypatch.setattr(ladder, "own_trial", control_trial)
    monkeypatch.setattr(ladder, "TRIALS", 1)
    monkeypatch.setattr(ladder, "SEARCH_SEEDS", 1)
    monkeypatch.setattr(ladder, "SEEDS", 2)
    rung = Rung("items", "ranking", "ap", arrays, {"epochs": 3, "batch_size": 64})
    line = ladder.climbed(rung, tmp_path, jobs=1)
    assert line.start in ("bce", "weighted_bce")
    assert line.difference.mean == pytest.approx(line.ours - line.theirs)
    assert line.seeds == 2
    assert (line.restart is not None) == taken
    if taken:
        assert line.restart.mean == pytest.approx(0.25 - line.theirs)
        assert line.restart.pairs == 2
    found = json.loads((tmp_path / "items" / "comparison.json").read_text())
    starts = [found["search"][name]["chosen"] for name in ("bce", "weighted_bce")]
    assert found["search"]["auto"]["chosen"] in [{**plain, **start} for start in starts]
    text = ladder.page([line], ["mars: no data"])
    assert "| items | ap |" in text
    assert "Not run: mars: no data" in text


def line(mean, low, high, p=0.5):
    difference = Difference(mean, (low, high), 5)
    timed = Difference(0.0, (-0.01, 0.01), 5)
    control = Difference(0.02, (0.01, 0.03), 5)
    rest = (difference, timed, Difference(-0.01, (-0.02, 0.01), 5), control, p)
    return ladder.Line(RUNGS[0], "bce", 0.5, 0.5 + mean, *rest, [(0.02, -0.03)], 5)


def test_the_page_counts_wins_ties_and_losses():
    lines = [line(0.02, 0.01, 0.03), line(0.0, -0.01, 0.01), line(-0.01, -0.015, -0.005, p=0.01)]
    text = ladder.page(lines, [])
    assert "1 wins, 1 ties, 1 losses. Mean of all tasks: +0.33" in text
    others = "+0.0 (-1.0 to +1.0) | +2.0 (+1.0 to +3.0) | -1.0 (-2.0 to +1.0)"
    assert f"| loss | 0.03 | {others} | 1 of 5 |" in text  # 0.01 times three tasks
    assert "Against the other baseline: 0 wins, 3 ties, 0 losses, mean -1.00" in text


def test_the_interval_over_seeds_covers_the_mean_of_the_tasks():
    random, covered, draws = np.random.default_rng(0), 0, 1000
    truth, spreads = np.array([0.0, 1.0, -2.0]), np.array([0.1, 1.0, 3.0])
    for _ in range(draws):
        values = random.normal(truth, spreads, (5, 3))
        tasks = [dict(enumerate(task)) for task in values.T]
        each = [paired_difference(task, dict.fromkeys(task, 0.0)) for task in tasks]
        covered += abs(values.mean() - truth.mean()) <= ladder._over_seeds(each)
    assert 0.93 < covered / draws < 0.975
    one = Difference(0.5, (0.2, 0.8), 5)
    assert ladder._over_seeds([one]) == pytest.approx(0.3)
    same = Difference(0.0, (0.0, 0.0), 5)
    assert ladder._over_seeds([same, same]) == 0
    assert ladder._over_seeds([one, same]) == pytest.approx(0.15)


def test_the_page_explains_means_more_than_a_point_below():
    low = line(-0.02, -0.05, 0.01)
    text = ladder.page([low, line(-0.005, -0.05, 0.01)], [])
    (found,) = (row for row in text.split("\n") if row.startswith("- scenes:"))
    assert found.endswith("on validation and on test: +2.0 and -3.0.")


def test_the_page_names_the_tasks_that_were_not_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        ladder, "climbed", lambda rung, *_: replace(line(0.0, -0.01, 0.01), rung=rung)
    )
    monkeypatch.setattr(sys, "argv", ["ladder", "yeast1", "--out", str(tmp_path)])
    assert ladder.main() == 0
    text = (tmp_path / "ladder.md").read_text()
    assert "| yeast1 |" in text
    assert "segment0: not selected" in text
    assert "pima" not in text  # held out


def test_camvid_is_split_by_drives(tmp_path):
    for part, names in (("train", ("0001TP_1", "0006R0_1", "0016E5_1")), ("val", ("0016E5_2",))):
        for folder in ("images", "masks"):
            (tmp_path / part / folder).mkdir(parents=True)
        for name in names:
            Image.new("RGB", (240, 180)).save(tmp_path / part / "images" / f"{name}.jpg")
            Image.new("L", (240, 180), 255).save(tmp_path / part / "masks" / f"{name}.png")
    found = camvid(tmp_path, shared_drive=True)
    sizes = {name: len(found[f"{name}inputs"]) for name in ("", "val_", "test_")}
    assert sizes == {"": 2, "val_": 1, "test_": 1}
    assert found["inputs"].shape == (2, 88, 120, 3)
    assert found["target"].shape == (2, 88, 120)
    assert (found["target"] == 255).all()  # halved without a mean
    assert len(camvid(tmp_path, shared_drive=False)["inputs"]) == 1
    with pytest.raises(NotFetchedError, match="--camvid"):
        camvid(None, shared_drive=True)
