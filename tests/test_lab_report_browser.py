"""The report in headless Chromium: light, dark and on a phone, without an error and without
overflow.
"""

import io

import browser
import numpy as np
import pytest
from PIL import Image
from synthetic_runs import comparison

from evalgrad_lab import report

pytestmark = pytest.mark.skipif(
    browser.EXECUTABLE is None, reason="chromium is not installed (apt-get install chromium)"
)

# What sticks out of the screen, unless a box around it scrolls or clips.
OVERFLOWING = """
[...document.querySelectorAll("body *")].filter(element => {
  const box = element.getBoundingClientRect();
  const inside = element.parentElement.closest(".scroll, .cards thead");
  return box.width > 0 && !inside && (box.right > WIDTH + 0.5 || box.left < -0.5);
}).map(element => element.outerHTML.slice(0, 200))
"""
# Text of a figure that is cut off or covered would be unreadable: every text must lie inside its
# drawing.
CUT_TEXT = """
[...document.querySelectorAll("svg text")].filter(text => {
  const box = text.getBoundingClientRect(), around = text.ownerSVGElement.getBoundingClientRect();
  const beside = box.left < around.left - 1 || box.right > around.right + 1;
  return beside || box.bottom > around.bottom + 1;
}).map(text => text.ownerSVGElement.getAttribute("aria-label") + ": " + text.textContent)
"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser.page(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    report.write_report(comparison(), path)
    return path


def picture(tab, path, width, scheme):
    tab.open(path, width, scheme=scheme)
    tab.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    return np.array(Image.open(io.BytesIO(tab.screenshot())).convert("L"), dtype=float)


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(1200, "light"), (1200, "dark"), (768, "light"), (390, "dark"), (320, "light")],
)
def test_nothing_overflows_and_nothing_complains(tab, path, width, scheme):
    picture(tab, path, width, scheme)
    assert tab.evaluate(OVERFLOWING.replace("WIDTH", str(width))) == []
    assert (
        tab.evaluate("document.documentElement.scrollWidth") <= tab.evaluate("innerWidth") == width
    )
    assert tab.evaluate(CUT_TEXT) == []
    assert tab.problems == []


def test_light_is_light_dark_is_dark_and_a_phone_has_its_own_layout(tab, path):
    light, dark, phone = (
        picture(tab, path, *view) for view in ((1200, "light"), (1200, "dark"), (390, "light"))
    )
    assert np.median(light) > 200
    assert np.median(dark) < 60
    assert light.shape == dark.shape == (900, 1200)
    assert phone.shape == (900, 390)
    assert light.std() > 10
    assert dark.std() > 10
    assert tab.evaluate("getComputedStyle(document.querySelector('.results tr')).display") == "grid"
    picture(tab, path, 1200, "light")
    assert (
        tab.evaluate("getComputedStyle(document.querySelector('.results tr')).display")
        == "table-row"
    )


def test_the_checks_see_a_bad_page(tab, tmp_path):
    """A wide box, a cut text, a missing picture and an error in the console must each be
    noticed.
    """
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><meta name=viewport content='width=device-width'><div"
        " style='width:900px'>wide</div><svg viewBox='0 0 10 10' width=20 aria-label=x><text"
        " x=9>long text</text></svg><img src=missing.png><script>console.error('no')</script>"
    )
    tab.open(bad, 390)
    assert tab.evaluate("document.documentElement.scrollWidth") > 390
    assert len(tab.evaluate(OVERFLOWING.replace("WIDTH", "390"))) >= 1
    assert tab.evaluate(CUT_TEXT) == ["x: long text"]
    assert len(tab.problems) >= 2
    tab.problems.clear()
