"""The documentation site, built once: every public name is there, nothing is dead, and headless
Chromium shows it in light, dark and on a phone without an error, overflow or faint text.
"""

import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path

import browser
import numpy as np
import pytest
from PIL import Image

from docs.site import public

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mkdocstrings") is None,
    reason="the site's packages are not installed (pip install '.[docs]')",
)
in_a_browser = pytest.mark.skipif(
    browser.EXECUTABLE is None, reason="chromium is not installed (apt-get install chromium)"
)

ROOT = Path(__file__).parent.parent
PAGES = ["index", "guide", "reference/index", "reference/lovasz", "tutorials/segmentation", "maths"]
VIEWS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]

# What sticks out of the screen, unless a box around it scrolls; the drawer of a phone is outside.
OVERFLOWING = """
[...document.querySelectorAll(".md-content *")].filter(element => {
  const box = element.getBoundingClientRect();
  const inside = element.closest("pre, table, .md-typeset__scrollwrap, .headerlink, .md-clipboard");
  return box.width > 0 && !inside && (box.right > WIDTH + 0.5 || box.left < -0.5);
}).map(element => element.outerHTML.slice(0, 200))
"""
# Text whose contrast with what is behind it is below 4.5, or 3 where it is large (WCAG AA).
FAINT = """
(() => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const over = (top, under) => {
    const a = top.length > 3 ? top[3] : 1;
    return [0, 1, 2].map(i => a * top[i] + (1 - a) * under[i]);
  };
  const light = rgb => rgb.map(x => x / 255)
    .map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
    .reduce((sum, x, i) => sum + x * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    if (!element) return [255, 255, 255];
    const own = parse(getComputedStyle(element).backgroundColor);
    const opaque = own.length === 3 || own[3] === 1;
    return opaque ? own.slice(0, 3) : over(own, behind(element.parentElement));
  };
  const own = element => [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  return [...document.querySelectorAll(".md-content *, .md-header *")].filter(element => {
    const box = element.getBoundingClientRect(), style = getComputedStyle(element);
    const apart = ".headerlink, .md-header__topic + .md-header__topic, script, style, .md-search";
    if (!own(element) || !box.width || style.visibility === "hidden" || element.closest(apart))
      return false;
    const under = behind(element), [a, b] = [light(over(parse(style.color), under)), light(under)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    return ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5);
  }).map(element => getComputedStyle(element).color + " " + element.outerHTML.slice(0, 120));
})()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "-d", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser.page(tmp_path_factory.mktemp("profile")) as page:
        yield page


def test_every_public_name_is_in_the_reference(site):
    pages = {path.stem: path.read_text() for path in (site / "reference").glob("*.html")}
    for name in public.names():
        page = pages[name.package.rpartition(".")[2]]
        assert f'.{name.name}"' in page, f"no anchor of {name.spelled}"
        assert f"{name.spelled}" in page


@pytest.mark.parametrize(
    ("page", "method"),
    [
        ("s_measures", "SMeasure.diagnostics"),
        ("s_measures", "SMeasure.forward"),
        ("sampling", "EquibatchSampler.state_dict"),
        ("sampling", "PerformanceSampler.update"),
        ("distributed", "CrossBatchMemory.forward"),
    ],
)
def test_methods_are_in_the_reference(site, page, method):
    shown = (site / f"reference/{page}.html").read_text()
    assert f'.{method}" class="doc doc-heading"' in shown


def test_names_of_the_command_are_not_taken_for_functions(site):
    """`recall_at_precision` is a loss of `evalgrad train`, and a metric of the library."""
    page = (site / "train.html").read_text()
    assert "<code>recall_at_precision</code>" in page
    assert "metrics.html#" not in page
    assert 'href="reference/decisions.html#evalgrad.decisions.best_threshold"' in page
    assert (
        'href="reference/metrics.html#evalgrad.metrics.dice"' in (site / "guide.html").read_text()
    )


def test_nothing_is_loaded_from_elsewhere(site):
    for path in site.glob("**/*.html"):
        text = path.read_text()
        assert 'src="http' not in text, path
        assert "unpkg" not in text, path
        assert str(ROOT) not in text, path


def picture(tab, path, width, scheme):
    tab.open(path, width, scheme=scheme)
    return np.array(Image.open(io.BytesIO(tab.screenshot())).convert("L"), dtype=float)


@in_a_browser
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_readable_in_light_dark_and_on_a_phone(site, tab, page):
    for width, scheme in VIEWS:
        shown = picture(tab, site / f"{page}.html", width, scheme)
        assert (np.median(shown) > 200) == (scheme == "light"), (width, scheme)
        assert shown.std() > 10
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        assert tab.evaluate(OVERFLOWING.replace("WIDTH", str(width))) == [], (width, scheme)
        assert tab.evaluate(FAINT) == [], (width, scheme)
        assert tab.problems == []


def columns(tab):
    """The right edge of the page, and of each column of its tables with what it is called."""
    edges = "[...document.querySelectorAll('.md-content th, .md-content article')]"
    edges += ".map(one => [one.tagName, one.innerText, one.getBoundingClientRect().right])"
    found = tab.evaluate(edges)
    (page,) = (right for tag, _, right in found if tag == "ARTICLE")
    return page, [(name, right) for tag, name, right in found if tag == "TH"]


@in_a_browser
@pytest.mark.parametrize(
    ("page", "least"), [("index", 16), ("guide", 9), ("lab", 10), ("maintaining", 3)]
)
def test_no_column_of_a_table_is_out_of_sight(site, tab, page, least):
    tab.open(site / f"{page}.html", 1280)
    edge, found = columns(tab)
    assert len(found) >= least
    assert [name for name, right in found if right > edge + 0.5] == []


# The cells of numbers that are spread over more than one line.
BROKEN = """
[...document.querySelectorAll(".md-content td")].filter(cell => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top)));
  return /^[+-]?[\\d.]+ [±[(][^a-z]*$/.test(cell.innerText.trim()) && lines.size > 1;
}).map(cell => cell.innerText)
"""


@in_a_browser
@pytest.mark.parametrize("page", ["papers/index", "papers/smooth_topk"])
def test_a_number_and_its_interval_are_not_broken(site, tab, page):
    tab.open(site / f"{page}.html", 1280)
    assert tab.evaluate(BROKEN) == []
    edge, found = columns(tab)
    assert [name for name, right in found if right > edge + 0.5] == []


@in_a_browser
def test_the_ladders_verdicts_are_in_sight_and_a_row_is_a_line(site, tab):
    tab.open(site / "ladder.html", 1280)
    edge, found = columns(tab)
    assert max(right for name, right in found if name in ("difference", "verdict")) <= edge
    (line,) = tab.evaluate(
        "[...document.querySelectorAll('td')].filter(one => one.innerText === 'camvid')"
        ".slice(0, 1).map(one => one.getBoundingClientRect().height)"
    )
    assert line < 45  # a second line adds 20


@in_a_browser
def test_search_finds_a_name_without_a_server(site, tab):
    tab.open(site / "index.html", 1280)
    tab.evaluate("location.hash = '#__search'; document.querySelector('#__search').click()")
    tab.evaluate(
        "(() => { const box = document.querySelector('.md-search__input'); box.focus();"
        " box.value = 'smooth_topk_loss';"
        " box.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})) })()"
    )
    found = "new Promise(done => { const look = () => { const link = document.querySelector("
    found += (
        "'.md-search-result__link'); link ? done(link.href) : setTimeout(look, 50) }; look() })"
    )
    link = tab.call("Runtime.evaluate", expression=found, awaitPromise=True, returnByValue=True)
    assert "smooth_topk" in link["result"]["value"]
    assert tab.problems == []


@in_a_browser
def test_the_checks_see_a_bad_page(tab, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><meta name=viewport content='width=device-width'><div class=md-content>"
        "<div style='width:900px'>wide</div><p style='color:#aaa'>faint</p></div>"
        "<script src='missing.js'></script>"
    )
    tab.open(bad, 390)
    assert len(tab.evaluate(OVERFLOWING.replace("WIDTH", "390"))) == 1
    assert len(tab.evaluate(FAINT)) == 1
    assert tab.problems
    tab.problems.clear()
