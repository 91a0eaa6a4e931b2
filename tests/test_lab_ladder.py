"""The ladder: its files, what a row says of a comparison, and its sums."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from scipy import stats
from training_data import table

from evalgrad_lab.data.dataset import Reading
from evalgrad_lab.data.fetched import NotFetchedError
from evalgrad_lab.data.files.read import read
from evalgrad_lab.report.panels import Difference, paired_difference
from reproductions.ladder import __main__ as ladder
from reproductions.ladder import page
from reproductions.ladder.arrays import camvid
from reproductions.ladder.rungs import RUNGS, Rung, rungs, write

ROOT = Path(__file__).parents[1]
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
    store = tmp_path / "items" / "store"
    kept = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    assert kept
    assert ladder.climbed(rung, tmp_path, jobs=1) == line  # with nothing trained again
    assert kept == {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    text = page.page([line], ["mars: no data"])
    assert "| items | ap |" in text
    assert "Not run: mars: no data" in text


def line(mean, low, high, p=0.5):
    difference = Difference(mean, (low, high), 5)
    timed = Difference(0.0, (-0.01, 0.01), 5)
    control = Difference(0.02, (0.01, 0.03), 5)
    rest = (difference, timed, Difference(-0.01, (-0.02, 0.01), 5), control, p)
    return page.Line(RUNGS[0], "bce", 0.5, 0.5 + mean, *rest, [(0.02, -0.03)], 5)


def test_the_page_counts_wins_ties_and_losses():
    lines = [line(0.02, 0.01, 0.03), line(0.0, -0.01, 0.01), line(-0.01, -0.015, -0.005, p=0.01)]
    text = page.page(lines, [])
    assert "1 win, 1 tie, 1 loss. Mean of all tasks: +0.33" in text
    others = "+0.0 (-1.0 to +1.0) | +2.0 (+1.0 to +3.0) | -1.0 (-2.0 to +1.0)"
    assert f"| loss | 0.03 | {others} | 1 of 5 |" in text  # 0.01 times three tasks
    assert "Against the other baseline: 0 wins, 3 ties, 0 losses, mean -1.00" in text


def points(cell):
    """A difference from a cell of the page, such as +0.4 (-1.0 to +1.8)."""
    mean, low, high = (float(number) / 100 for number in re.findall(r"[+-][\d.]+", cell))
    return Difference(mean, (low, high), 5)


def before_holm(p, rung):
    """Of the smallest of a table; a corrected one of 1 stays 1."""
    return p / (4 if rung.held_out else 20) if p < 1 else 1.0


def page_lines():
    """The rows of docs/ladder.md, as far as the section on failures needs them."""
    known = {rung.name: rung for rung in rungs()}
    for row in (ROOT / "docs" / "ladder.md").read_text().split("\n"):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if cells[0] in known and len(cells) == 12:
            yield page.Line(
                known[cells[0]],
                cells[2],
                *(float(cell) / 100 for cell in cells[3:5]),
                points(cells[5]),
                points(cells[8]),
                points(cells[10]),
                None,
                before_holm(float(cells[7]), known[cells[0]]),
                [],
                5,
            )


def test_the_page_in_docs_says_where_it_fails_by_its_own_table():
    lines = list(page_lines())
    assert [len([one for one in lines if one.rung.held_out == held]) for held in (0, 1)] == [20, 4]
    text = (ROOT / "docs" / "ladder.md").read_text()
    for part in page._failures(lines):
        assert part in text
    below = [one.rung.name for one in lines if one.other.verdict == "loss"]
    assert below == ["landsat", "noisy-digit", "page-blocks0", "camvid-apart"]
    assert "Against the other baseline: 6 wins, 10 ties, 4 losses" in text


def test_the_command_of_the_page_makes_all_of_it():
    """Without `--held-out` it would take the second table away."""
    (command,) = (row for row in (ROOT / "Makefile").read_text().split("\n") if ".ladder " in row)
    assert "--held-out --docs docs" in command


def test_where_it_fails_is_told_with_what_is_known():
    lines = [line(0.02, 0.01, 0.03), line(-0.01, -0.011, -0.009)]
    lines = [replace(one, other=Difference(-0.05, (-0.06, -0.04), 5)) for one in lines]
    text = page.page(lines, [])
    both = "2 of 2 intervals entirely below zero (p after Holm's correction: scenes below 0.01, "
    assert f"- Against the other baseline: {both}scenes below 0.01). The criterion" in text
    assert "none after the correction, is not met. The mean of all tasks is -5.0" in text
    assert "1 of 2 intervals entirely below zero (p after Holm's correction: scenes 1.00)" in text
    assert (
        "seeds preferred bce, which has -7.0 to the other on test data; the recipe adds +2.0"
        in text
    )
    assert "in equal time, where" not in text
    slow = replace(lines[0], in_time=Difference(-0.03, (-0.07, 0.01), 5))
    said = "- scenes: -3.0 in equal time, where both branches are shorter; +2.0 without this limit."
    assert said in page.page([slow], [])
    gaps = [-0.02 + 0.05416 * x for x in (-0.5, -0.25, 0.0, 0.25, 0.5)]
    half = stats.sem(gaps) * stats.t.ppf(0.975, 4)
    difference = Difference(-0.02, (-0.02 - half, -0.02 + half), 5)
    expected = stats.ttest_1samp(gaps, 0.0, alternative="less").pvalue
    assert page._p(difference) == pytest.approx(expected)


@pytest.mark.parametrize(("gap", "p"), [(-0.25, 0.0), (0.0, 1.0), (0.25, 1.0)])
def test_gaps_that_are_all_the_same_are_a_loss_where_they_are_negative(monkeypatch, gap, p):
    values = {"auto": 0.5 + gap, "bce": 0.5, "weighted_bce": 0.5}
    runs = lambda value: [  # noqa: E731
        {
            "seed": s,
            "test": {"AP": value},
            "hyper": {"positive_weight": 1.0},
            "recipe": {"taken": 0},
        }
        for s in range(5)
    ]
    rows = [SimpleNamespace(loss=name, runs=runs(value)) for name, value in values.items()]
    panel = SimpleNamespace(rows=rows, metric="AP")
    found = ladder.line_of(RUNGS[6], panel, panel)
    assert (found.p, found.difference.verdict == "loss") == (p, gap < 0)


def test_another_folder_is_read_again(tmp_path):
    read = []
    rung = lambda source: Rung(  # noqa: E731
        "roads", "ranking", "ap", lambda: read.append(source) or arrays(), source=source
    )
    for source in ("a", "a", "b", "a"):
        write(rung(source), tmp_path)
    assert read == ["a", "b", "a"]
    assert [one.source for one in rungs(tmp_path)][-2:] == [str(tmp_path)] * 2


def test_the_sizes_of_a_task_are_those_of_its_parts(tmp_path):
    rung = Rung("items", "ranking", "ap", arrays, {"epochs": 3, "batch_size": 60})
    train, validation, test, classes, positives, steps = ladder.sizes_of(
        rung, write(rung, tmp_path)
    )
    assert (train, validation, test, classes, steps) == (180, 60, 60, 2, 9)
    assert sum(map(int, positives.split("/"))) == int(arrays()["target"].sum())


def test_the_interval_over_seeds_covers_the_mean_of_the_tasks():
    random, covered, draws = np.random.default_rng(0), 0, 1000
    truth, spreads = np.array([0.0, 1.0, -2.0]), np.array([0.1, 1.0, 3.0])
    for _ in range(draws):
        values = random.normal(truth, spreads, (5, 3))
        tasks = [dict(enumerate(task)) for task in values.T]
        each = [paired_difference(task, dict.fromkeys(task, 0.0)) for task in tasks]
        covered += abs(values.mean() - truth.mean()) <= page._over_seeds(each)
    assert 0.93 < covered / draws < 0.975
    one = Difference(0.5, (0.2, 0.8), 5)
    assert page._over_seeds([one]) == pytest.approx(0.3)
    same = Difference(0.0, (0.0, 0.0), 5)
    assert page._over_seeds([same, same]) == 0
    assert page._over_seeds([one, same]) == pytest.approx(0.15)


def test_the_page_explains_means_more_than_a_point_below():
    low = line(-0.02, -0.05, 0.01)
    text = page.page([low, line(-0.005, -0.05, 0.01)], [])
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
