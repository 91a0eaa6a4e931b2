"""The one rule for the papers' claims: undecided on pure noise, right on planted effects."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import reproductions
from reproductions import pages
from reproductions.claims import above, best, exact, gap, in_words, obstacle, similar

DRAWS = 400
PAPERS = Path(__file__).parent.parent / "docs/papers"
PAGES = sorted(PAPERS.glob("*.md"))


def noise(arms, seeds, draws=DRAWS):
    """(draws, arms, seeds) scores that differ by chance alone."""
    return 50 + np.random.default_rng(0).normal(size=(draws, arms, seeds))


def shares(verdicts):
    return {word: verdicts.count(word) / len(verdicts) for word in set(verdicts)}


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_a_direction_is_undecided_on_pure_noise(seeds):
    found = shares([above("", *draw.tolist()).verdict for draw in noise(2, seeds)])
    assert found["undecided"] >= 0.9
    # and not more often than 95 %: a rule that never decides would pass the line above
    assert 0.005 < found["found"] < 0.05
    assert 0.005 < found["not found"] < 0.05


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("arms", [2, 3, 5, 11])
def test_the_best_is_undecided_on_pure_noise(arms, seeds):
    verdicts = [
        best("", {str(at): row for at, row in enumerate(draw.tolist())}, "0").verdict
        for draw in noise(arms, seeds)
    ]
    assert shares(verdicts)["undecided"] >= 0.9


def test_the_best_of_many_by_plain_intervals_would_decide_on_noise():
    """Why `best` widens its interval: the rival is the best of ten, and wins more than 2.5 %."""
    draws = noise(11, 5)
    rivals = draws[np.arange(DRAWS), 1 + draws[:, 1:].mean(2).argmax(1)]
    plain = [gap(draw[0].tolist(), rival.tolist()) for draw, rival in zip(draws, rivals)]
    assert np.mean([found.verdict == "loss" for found in plain]) > 0.05


@pytest.mark.parametrize(("effect", "verdict"), [(6.0, "found"), (-6.0, "not found")])
def test_planted_effects_are_seen(effect, verdict):
    leads, firsts = [], []
    for ours, theirs, third in noise(3, 5).tolist():
        planted = [value + effect for value in ours]
        leads.append(above("", planted, theirs).verdict)
        every = {"ours": planted, "theirs": theirs, "third": third}
        firsts.append(best("", every, "ours").verdict)
    assert shares(leads)[verdict] > 0.99
    assert shares(firsts)[verdict] > 0.95


def test_an_effect_of_the_papers_size_can_be_excluded():
    level = ([50.0, 50.1, 49.9, 50.0], [50.1, 50.0, 50.0, 49.9])
    assert above("", *level).verdict == "undecided"
    assert above("", *level, paper=0.1).verdict == "undecided"
    assert above("", *level, paper=3.0).verdict == "not found"
    # a smaller effect than the paper's is still one
    assert above("", [52.0, 52.1], [51.0, 51.0], paper=9.0).verdict == "found"


@pytest.mark.parametrize("seeds", [3, 5])
def test_pure_noise_far_below_the_papers_effect_is_not_found(seeds):
    """Nor is an effect of the paper's size taken for none."""
    draws = noise(2, seeds).tolist()
    nothing = shares([above("", *draw, paper=20.0).verdict for draw in draws])
    assert nothing["not found"] > 0.9
    assert nothing["found"] < 0.05
    moved = [([value + 1.0 for value in ours], theirs) for ours, theirs in draws]
    planted = shares([above("", *draw, paper=1.0).verdict for draw in moved])
    assert planted["not found"] < 0.05


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.1, -0.1, 0.0], "found"),
        ([2.0, -2.0, 0.0], "undecided"),
        ([5.0, 5.1, 4.9], "not found"),
        ([0.1], "undecided"),
    ],
)
def test_similar_needs_an_interval_within_the_bound(differences, verdict):
    claim = similar("alike", differences, 0.0, bound=1.0)
    assert (claim.verdict, claim.text) == (verdict, "alike (within 1)")


def test_the_best_must_beat_the_second():
    named = {"a": [9.0, 9.1, 9.0], "b": [8.0, 8.2, 8.1], "c": [1.0, 1.1, 1.2]}
    assert best("", named, "a").verdict == "found"
    assert best("", named, "b").verdict == "not found"
    assert best("first", named, "a").text == "first; next b"
    close = named | {"b": [9.1, 8.9, 9.0]}
    assert best("", close, "a").verdict == "undecided"
    # as for a direction: an interval without the paper's effect excludes it
    assert best("", close, "a", paper=3.0).verdict == "not found"


def test_one_seed_decides_nothing():
    assert above("", [60.0], [50.0]).verdict == "undecided"
    assert above("", [60.0], [50.0]).ours == "+10.0 (one seed)"


def test_a_row_shows_the_papers_number_ours_and_the_seeds():
    row = above("ours is above", [2.0, 4.0], [1.0, 3.0], paper=3.36).cells()
    assert row == ["ours is above", "+3.4", "+1.0 [+1.0, +1.0]", "2", "**found**"]
    assert exact("it is convex", False, "gap 0.1").cells()[-1] == "**not found**"


def test_networks_that_cannot_tell_get_no_verdict():
    good, level = {"ours": [70.0, 71.0]}, [8.0, 8.1]
    assert obstacle(good, level) == ""
    assert obstacle(good, level, [0.3, 0.9]) == ""
    assert "further training changes it by +2.0" in obstacle(good, level, [1.5, 2.5])
    assert "further training changes it by -2.0" in obstacle(good, level, [-1.5, -2.5])
    reason = obstacle({"ours": [70.0, 71.0], "collapsed": [8.0, 8.1]}, level)
    assert reason == "collapsed does not beat the constant prediction (+0.0 [+0.0, +0.0])"
    claim = above("ours is above", [60.0, 61.0], [50.0, 51.0], unless=reason)
    assert claim.verdict == "not testable here"
    assert claim.cells()[-1] == f"**not testable here: {reason}**"
    assert claim.ours == "+10.0 [+10.0, +10.0]"


def test_gaps_are_paired_by_seed():
    assert in_words(gap([1.5], [1.0])) == "+0.5 (one seed)"
    assert gap([10.0, 20.0, 30.0], [9.0, 19.0, 29.0]).verdict == "win"
    assert gap([9.0, 19.0], 10.0).mean == 4.0
    for ours, theirs in (([], []), ([1.0, 2.0], [1.0])):
        with pytest.raises(ValueError, match="`ours` and `theirs` must hold a value per seed; got"):
            gap(ours, theirs)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf")])
def test_a_training_without_a_finite_result_gets_no_verdict(broken):
    good, bad = [70.0, 71.0, 70.5], [60.0, broken, 61.0]
    claims = [
        above("", good, bad),
        above("", bad, good, paper=3.0),
        similar("", bad, good, bound=1.0),
        best("", {"ours": good, "theirs": [1.0, 1.1, 1.2], "third": bad}, "ours"),
        best("", {"third": bad, "ours": good, "theirs": [1.0, 1.1, 1.2]}, "ours"),
        best("", {"ours": bad, "theirs": good}, "ours"),
    ]
    assert {claim.verdict for claim in claims} == {"not testable here"}
    assert {claim.why for claim in claims} == {"a training ended without a finite result"}
    assert claims[3].text == "; next third"
    assert "further training changes it by" in obstacle({"ours": good}, 8.0, [0.1, broken])


ROW = re.compile(
    r"\| (?P<text>[^|]*) \| (?P<paper>[^|]*) \| [+-][\d.]+ \[(?P<low>[^,]*), (?P<high>[^\]]*)\]"
    r" \| \d+ \| \*\*(?P<verdict>[^*:]*)"
)


def by_the_rule(text, paper, low, high):
    """The verdicts that these rounded numbers allow."""
    half = 0.5 * 10.0 ** -len(low.partition(".")[2])
    bound = re.search(r"within ([\d.]+)\)$", text)
    effect = float(paper) if re.fullmatch(r"[+-][\d.]+", paper) else 0.0
    for ends in itertools.product((-half, 0.0, half), repeat=3):
        first, last, gain = np.add([float(low), float(high), effect], ends)
        if bound:
            inside = -float(bound[1]) < first and last < float(bound[1])
            outside = last <= -float(bound[1]) or first >= float(bound[1])
        else:
            inside, outside = first > 0, last < max(0.0, gain if paper else 0.0)
        yield "found" if inside else "not found" if outside else "undecided"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_row_of_the_pages_is_by_the_rule(page):
    rows = list(ROW.finditer(page.read_text()))
    assert rows
    for row in rows:
        text, paper, low, high, verdict = row.groups()
        allowed = {*by_the_rule(text, paper, low, high), "not testable here"}
        assert verdict in allowed, row[0]


@pytest.mark.parametrize("paper", reproductions.papers(), ids=lambda paper: paper.name)
def test_every_size_of_every_experiment_has_a_result_on_its_page(paper):
    sections = pages.read_sections(PAPERS / f"{paper.name}.md")
    ran = {key for key, text in sections.items() if pages.NOT_RUN not in text}
    for experiment in paper.experiments:
        assert {(experiment.name, "default"), (experiment.name, "full")} & ran, experiment.name
        assert ((experiment.name, "full") in ran) == experiment.full, experiment.name
