"""The page as a file: well-formed, self-contained, escaped, and legible in light and dark."""

import base64
import io
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from report_reading import Tree, in_terminal
from synthetic_runs import SEGMENTATION, TASKS, comparison

from evalgrad_lab import report
from evalgrad_lab.report import pictures

STYLE = (Path(report.__file__).parent / "style.css").read_text()


@pytest.fixture(scope="module")
def text():
    return report.render(comparison())


def test_the_page_is_well_formed_and_accessible(text):
    elements = Tree(text).elements
    assert text.startswith("<!doctype html>")
    assert next(a for name, a, _ in elements if name == "html")["lang"] == "en-GB"
    assert [name for name, _, _ in elements if name in ("h1", "main")] == ["h1", "main"]
    levels = [int(name[1]) for name, _, _ in elements if re.fullmatch("h[1-6]", name)]
    assert all(below - above <= 1 for above, below in itertools.pairwise(levels))
    assert all(a.get("alt") for name, a, _ in elements if name == "img")
    assert all(
        a.get("aria-label") or a.get("aria-hidden") for name, a, _ in elements if name == "svg"
    )
    assert all(a["scope"] in ("row", "col") for name, a, _ in elements if name == "th")


def test_links_lead_to_places_of_the_page(text):
    elements = Tree(text).elements
    places = [a["id"] for _, a, _ in elements if "id" in a]
    assert len(places) == len(set(places))
    assert {a["href"][1:] for name, a, _ in elements if name == "a"} == {
        f"task-{number}" for number in range(1, len(TASKS) + 1)
    }
    assert {f"task-{number}" for number in range(1, len(TASKS) + 1)} <= set(places)


def test_the_page_needs_nothing_else(text):
    assert not re.search(r"https?:|@import|url\(", text)
    elements = Tree(text).elements
    assert not {"script", "iframe", "object", "embed"} & {name for name, _, _ in elements}
    assert all(a["src"].startswith("data:image/png;base64,") for _, a, _ in elements if "src" in a)
    assert all(a["href"].startswith(("#", "data:")) for _, a, _ in elements if "href" in a)


def test_the_page_ends_with_what_is_needed_to_repeat_it(text):
    runs = comparison()
    shown = " ".join("".join(Tree(text).elements[0][2]).split())
    assert runs["command"] in shown
    for name, value in (runs["versions"] | runs["machine"]).items():
        assert f"{name}{value}" in shown
    assert "seeds0, 1, 2, 3, 4" in shown
    rows = [
        " ".join("".join(inside).split()) for name, _, inside in Tree(text).elements if name == "tr"
    ]
    for run in runs["records"]:
        hyper = " ".join(f"{name}={value}" for name, value in run["hyper"].items())
        assert any(
            row.startswith(run["budget"])
            and run["loss"] in row
            and row.endswith(f"0, 1, 2, 3, 4 {hyper}")
            for row in rows
        )


def test_seeds_with_other_hyper_parameters_have_their_own_line():
    runs = comparison(seeds=3, tasks=TASKS[3:4])
    runs["records"][0]["hyper"]["learning_rate"] = 7.5
    rows = [
        "".join(inside) for name, _, inside in Tree(report.render(runs)).elements if name == "tr"
    ]
    assert [row for row in rows if "learning_rate=7.5" in row] != []
    assert "1, 2" in next(
        row
        for row in rows
        if "1, 2" in row and "learning_rate=0.012" in row and "0, 1, 2" not in row
    )


def test_names_are_text_never_markup():
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)> [bold] {{ 7*7 }}"
    runs = comparison(seeds=2, tasks=TASKS[:1])
    runs = json.loads(
        json.dumps(runs)
        .replace("lovasz_softmax", "EVIL")
        .replace("digit-scenes", "EVIL")
        .replace("background", "EVIL")
    )
    runs = json.loads(json.dumps(runs).replace("EVIL", json.dumps(evil)[1:-1]))
    for key in ("title", "description", "budget"):
        runs["records"] = [{**record, key: record[key] + evil} for record in runs["records"]]
    runs["versions"] = runs["machine"] = {evil: evil}
    page = report.render(runs | {"command": evil})
    elements = Tree(page).elements
    assert "script" not in {name for name, _, _ in elements}
    assert not [a for _, a, _ in elements if "onerror" in a]
    assert evil in [a.get("data-task") for _, a, _ in elements]
    assert evil in [a.get("data-class") for _, a, _ in elements]
    assert "[bold]" in in_terminal(runs)


def variables(block):
    return dict(re.findall(r"--([\w-]+): (#\w{6})", block))


def contrast(a, b):
    """The contrast ratio of WCAG 2."""

    def luminance(colour):
        channels = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
        return np.where(
            channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
        ) @ [0.2126, 0.7152, 0.0722]

    dark, light = sorted([luminance(a), luminance(b)])
    return (light + 0.05) / (dark + 0.05)


def test_contrast_knows_its_ends():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#123456", "#123456") == pytest.approx(1)


def test_light_and_dark_define_the_same_colours_and_both_are_legible():
    light, dark = (variables(block) for block in re.findall(r":root \{(.*?)\}", STYLE, re.S))
    assert light.keys() == dark.keys()
    assert set(re.findall(r"var\(--([\w-]+)\)", STYLE)) - {"c", "share"} <= light.keys()
    for colours in (light, dark):
        for name in ("text", "quiet", "link"):
            assert (
                min(contrast(colours[name], colours[ground]) for ground in ("page", "card")) >= 4.5
            )
        for name in ("win", "tie", "loss", "unknown"):
            assert contrast(colours[name], colours[f"{name}-soft"]) >= 4.5
        lines = [name for name in colours if re.match(r"(ours|baseline)\d", name)]
        assert len(lines) == 10
        assert min(contrast(colours[name], colours["card"]) for name in lines) >= 3


def decoded(uri):
    return np.array(Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))).convert("RGB"))


def test_a_label_map_becomes_its_colours():
    labels = [[-1, 0, 1], [15, 16, 30]]
    first = pictures.CLASS_COLOURS[1]
    expected = [
        [pictures.CLASS_COLOURS[0]] * 2 + [first],
        [pictures.CLASS_COLOURS[15], first, pictures.CLASS_COLOURS[15]],
    ]
    assert decoded(pictures.label_picture(labels)).tolist() == np.array(expected).tolist()
    assert len(set(pictures.CLASS_COLOURS)) == len(pictures.CLASS_COLOURS)


def test_a_grey_picture_spans_black_to_white_and_a_flat_one_is_black():
    for image in ([[2.0, 4.0, 3.0]], [[[2.0, 4.0, 3.0]]]):
        assert decoded(pictures.image_picture(image))[0, :, 0].tolist() == [0, 255, 128]
    assert not decoded(pictures.image_picture([[5.0, 5.0]])).any()


def test_three_channels_make_a_colour_picture():
    red_and_blue = [[[1.0, 0.0]], [[0.0, 0.0]], [[0.0, 1.0]]]
    assert decoded(pictures.image_picture(red_and_blue)).tolist() == [[[255, 0, 0], [0, 0, 255]]]


def test_every_loss_shows_its_own_prediction(text):
    images = [a for name, a, _ in Tree(text).elements if name == "img"]
    assert len(images) == sum(3 * (2 + len(task[5])) for task in TASKS if task[0] in SEGMENTATION)
    record = next(
        r for r in comparison()["records"] if r["loss"] == "lovasz_softmax" and r["seed"] == 0
    )
    shown = next(a["src"] for a in images if a["alt"] == "Example 2, lovasz_softmax")
    colours = np.array(pictures.CLASS_COLOURS)[record["examples"][1]["prediction"]]
    assert (decoded(shown) == colours).all()


def test_the_report_is_written_whole_and_stays_small(tmp_path):
    report.write_report(comparison(), tmp_path / "new" / "report.html")
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["report.html"]
    assert (tmp_path / "new" / "report.html").stat().st_size < 1e6
