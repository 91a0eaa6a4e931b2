"""The ladder: its files, what a row says of a comparison, and its sums."""

import numpy as np
import pytest
from training_data import table

from evalgrad_lab.data.dataset import Reading
from evalgrad_lab.data.files.read import read
from evalgrad_lab.report.panels import Difference
from reproductions.ladder import __main__ as ladder
from reproductions.ladder.rungs import RUNGS, Rung, write

EMBEDDED = ("scenes", "strokes", "strokes-dice", "noisy-digit", "digit", "digit-pairs")


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


def test_a_task_is_climbed(tmp_path, monkeypatch):
    monkeypatch.setattr(ladder, "TRIALS", 1)
    monkeypatch.setattr(ladder, "SEARCH_SEEDS", 1)
    monkeypatch.setattr(ladder, "SEEDS", 2)
    rung = Rung("items", "ranking", "ap", arrays, {"epochs": 3, "batch_size": 64})
    line = ladder.climbed(rung, tmp_path, jobs=1)
    assert line.reference in ("bce", "weighted_bce")
    assert line.difference.mean == pytest.approx(line.ours - line.theirs)
    assert line.seeds == 2
    assert 0 <= line.taken <= 2
    text = ladder.page([line], ["mars: no data"])
    assert "| items | ap |" in text
    assert "Not run: mars: no data" in text


def line(mean, low, high, p=0.5):
    return ladder.Line(RUNGS[0], "bce", 0.5, 0.5 + mean, Difference(mean, (low, high), 5), p, 1, 5)


def test_the_page_counts_wins_ties_and_losses():
    lines = [line(0.02, 0.01, 0.03), line(0.0, -0.01, 0.01), line(-0.01, -0.015, -0.005, p=0.01)]
    text = ladder.page(lines, [])
    assert "1 wins, 1 ties, 1 losses. Mean of all tasks: +0.33 points" in text
    assert "| 0.03 | 1 of 5 |" in text  # 0.01 times three tasks
