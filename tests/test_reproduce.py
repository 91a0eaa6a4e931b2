"""The frame of `python -m reproductions`, on a paper that the tests write: pieces, resuming, pages,
messages.
"""

import importlib
import re
import sys
from dataclasses import replace

import pytest
import torch

import reproductions
from reproductions import drawing, pages
from reproductions.__main__ import main

TRIAL = """
import os
from pathlib import Path
import torch
from reproductions.drawing import new_figure
from reproductions.experiment import Experiment, Outcome, Paper, Table
from reproductions.sizes import SkippedError
from reproductions.claims import above, exact

FACTOR = 2

def double(seed, log):
    with open(log, "a") as file:
        file.write(f"{seed} {os.getpid()} {torch.get_num_threads()}\\n")
    if Path(log).with_name("stop").exists() and seed == 2:
        raise KeyboardInterrupt
    return FACTOR * seed

def run(size, runs):
    seeds = [1, 2] if size == "tiny" else [1, 2, 3]
    found = runs.run(double, [{"seed": seed, "log": os.environ["TRIAL_LOG"]} for seed in seeds])
    figure = new_figure()
    figure.subplots().plot(seeds, found)
    rows = [[seed, value, 2.0] for seed, value in zip(seeds, found)]
    table = Table("Doubles", ["seed", "ours", "paper"], rows)
    figures = {"Doubling": figure}
    return Outcome({"doubles": found, "seeds": seeds}, "doubled [seeds].", seeds, [table], figures)

def needs_data(size, runs):
    raise SkippedError("the data is not there. `make data` fetches it.")

def judge(numbers):
    first = above("it grows", numbers["doubles"], numbers["seeds"], paper=1.0)
    return [first, exact("it is even", True, "all")]

PAPER = Paper("trial", "A trial", "Nobody, 2000.", "It doubles.", [
    Experiment("trial/table-1", "Doubling", "Table 1", "it doubles.", run, judge),
    Experiment("trial/table-2", "Needs data", "Table 2", "it needs data.", needs_data, judge),
])
"""


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """A paper of two experiments, importable here and in the workers; returns its folder."""
    (tmp_path / "trial_paper.py").write_text(TRIAL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TRIAL_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(
        reproductions, "papers", lambda *_: [importlib.import_module("trial_paper").PAPER]
    )
    yield tmp_path
    sys.modules.pop("trial_paper", None)


def reproduce(folder, *arguments):
    return main([*arguments, "--out", str(folder / "out"), "--docs", str(folder / "docs")])


def calls(folder):
    return [line.split() for line in (folder / "log").read_text().splitlines()]


def test_result_stands_next_to_the_papers_numbers_with_the_verdict(trial, capsys):
    assert reproduce(trial, "trial/table-1", "--jobs", "1") == 0
    shown = capsys.readouterr().out
    page = (trial / "docs" / "trial.md").read_text()
    for text in (shown, page):
        assert "it grows" in text
        assert "not found" not in text
        assert "Doubles" in text
    assert "| it grows | +1.0 | +2.0 [-0.5, +4.5] | 3 | **undecided** |" in page
    assert "| it is even |  | all |  | **found** |" in page
    assert "| 3 | 6 | 2 |" in page
    assert "`python -m reproductions trial/table-1` · seeds 1, 2, 3 · evalgrad" in page
    assert f"torch {torch.__version__}" in page
    assert (trial / "docs" / "figures" / "trial_table-1.svg").read_text().startswith("<?xml")


def test_the_readme_opens_with_the_headline_of_every_experiment(trial):
    readme = trial / "docs" / "README.md"
    readme.parent.mkdir()
    readme.write_text("# Papers\n\n<!-- begin claims -->\nold\n<!-- end claims -->\n\nmore\n")
    reproduce(trial, "all", "--jobs", "1")
    reproduce(trial, "trial/table-1", "--tiny", "--jobs", "1")
    rows = [line for line in readme.read_text().splitlines() if "A trial" in line]
    assert rows == [
        "| A trial, [Table 1](trial.md) | default | it grows | +1.0 | +2.0 [-0.5, +4.5] | 3 |"
        " **undecided** |",
        "| A trial, [Table 2](trial.md) | default | it needs data. |  |  |  | not run |",
    ]
    assert "old" not in readme.read_text()
    assert readme.read_text().endswith("<!-- end claims -->\n\nmore\n")


def test_an_experiment_of_no_claim_of_the_paper_is_not_among_them(trial):
    readme = trial / "docs" / "README.md"
    readme.parent.mkdir()
    readme.write_text("<!-- begin claims -->\n<!-- end claims -->\n")
    reproduce(trial, "trial/table-1", "--jobs", "1")
    assert "A trial" in readme.read_text()
    (paper,) = reproductions.papers()
    ours = [replace(paper.experiments[0], headlines=())]
    pages.write_summary([replace(paper, experiments=ours)], readme.parent)
    assert "A trial" not in readme.read_text()


def test_an_interrupted_command_resumes_with_what_is_missing(trial, capsys):
    (trial / "stop").touch()
    assert reproduce(trial, "all", "--jobs", "1") == 130
    (trial / "stop").unlink()
    assert reproduce(trial, "all", "--jobs", "1") == 0
    assert [seed for seed, *_ in calls(trial)] == ["1", "2", "2", "3"]
    assert reproduce(trial, "all", "--jobs", "1") == 0
    assert len(calls(trial)) == 4


def test_runs_are_in_fresh_processes_on_one_thread(trial):
    assert reproduce(trial, "trial/table-1", "--jobs", "2") == 0
    rows = calls(trial)
    assert sorted(seed for seed, *_ in rows) == ["1", "2", "3"]
    assert str(__import__("os").getpid()) not in {process for _, process, _ in rows}
    assert {threads for *_, threads in rows} == {"1"}
    assert (
        "| 1 | 2 | 2 |\n| 2 | 4 | 2 |\n| 3 | 6 | 2 |" in (trial / "docs" / "trial.md").read_text()
    )


def test_changed_code_is_never_answered_by_an_old_run(trial):
    reproduce(trial, "trial/table-1", "--jobs", "1")
    (trial / "trial_paper.py").write_text(TRIAL.replace("FACTOR = 2", "FACTOR = 10"))
    sys.modules.pop("trial_paper")
    importlib.invalidate_caches()
    reproduce(trial, "trial/table-1", "--jobs", "1")
    assert "| 3 | 30 | 2 |" in (trial / "docs" / "trial.md").read_text()


def test_a_skipped_experiment_says_why_and_never_replaces_a_result(trial, capsys):
    assert reproduce(trial, "trial", "--tiny", "--jobs", "1") == 0
    assert "skipped: the data is not there" in capsys.readouterr().out
    path = trial / "docs" / "trial.md"
    assert "Not run: the data is not there. `make data` fetches it." in path.read_text()
    table_1 = reproductions.find(["trial/table-1"])[0]
    paper = reproductions.papers()[0]
    before = pages.read_sections(path)
    pages.write_page(paper, {}, {table_1.name: "gone."}, trial / "docs")
    assert pages.read_sections(path) == before
    assert set(before) == {("trial/table-1", "tiny"), ("trial/table-2", "default")}


def test_a_skipped_experiment_stays_on_the_page_until_it_has_a_result(trial):
    paper, folder = reproductions.papers()[0], trial / "docs"
    pages.write_page(paper, {}, {"trial/table-2": "no data."}, folder)
    reproduce(trial, "trial/table-1", "--tiny", "--jobs", "1")
    assert "Not run: no data." in (folder / "trial.md").read_text()
    pages.write_page(paper, {("trial/table-2", "full"): "found\n"}, {}, folder)
    assert set(pages.read_sections(folder / "trial.md")) == {
        ("trial/table-1", "tiny"),
        ("trial/table-2", "full"),
    }


def test_sizes_stand_side_by_side_in_the_order_of_the_paper(trial):
    reproduce(trial, "trial", "--jobs", "1")
    reproduce(trial, "trial", "--tiny", "--jobs", "1")
    found = re.findall(r"<!-- begin (\S+ \S+) -->", (trial / "docs" / "trial.md").read_text())
    assert found == ["trial/table-1 tiny", "trial/table-1 default", "trial/table-2 default"]
    headings = re.findall("## Doubling.*", (trial / "docs" / "trial.md").read_text())
    assert headings == ["## Doubling (--tiny)", "## Doubling"]


def test_an_experiment_without_a_larger_size_says_so_and_keeps_its_page(trial, capsys):
    assert reproduce(trial, "trial", "--full", "--jobs", "1") == 0
    assert "trial/table-1  has no larger size than the default." in capsys.readouterr().out
    assert not (trial / "docs" / "trial.md").exists()
    assert not (trial / "log").exists()


def test_pictures_are_the_same_bytes_on_every_run(tmp_path):
    for name in ("a.svg", "b.svg"):
        figure = drawing.new_figure()
        axes = figure.subplots()
        axes.plot([1 / 3, 2 / 3], [0, 1], label="line")
        axes.fill_between([0, 1], [0, 1], alpha=0.2)
        axes.legend()
        drawing.write_svg(figure, tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert "<dc:date>" not in text


def test_pictures_place_things_by_two_decimals_and_keep_all_of_a_label(tmp_path):
    figure = drawing.new_figure()
    axes = figure.subplots()
    axes.plot([1 / 3, 2 / 3], [0, 1], label="alpha 0.0001")
    axes.set_yticks([0.025], labels=["0.025"])
    axes.legend()
    drawing.write_svg(figure, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert ">alpha 0.0001<" in text
    assert ">0.025<" in text
    assert not re.search(r"<[^>]*\d\.\d{3}[^>]*>", re.sub(r"<!--.*?-->", "", text))


def test_list_names_every_experiment(trial, capsys):
    assert main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert "trial/table-1" in shown
    assert "trial/table-2" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["trial/table-9"],
            (
                "`trial/table-9` is neither a paper nor an experiment. Known: trial/table-1,"
                " trial/table-2."
            ),
        ),
        ([], "name an experiment, a paper, or `all`. `python -m reproductions --list` lists them."),
        (
            ["all", "--jobs", "0"],
            "--jobs must be at least 1; got 0. Leave it out for one per core.",
        ),
    ],
)
def test_messages(trial, capsys, arguments, message):
    assert reproduce(trial, *arguments) == 2
    assert capsys.readouterr().err == f"python -m reproductions: {message}\n"
