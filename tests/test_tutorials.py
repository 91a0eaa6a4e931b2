"""The tutorials run, and their pages show the code that runs."""

import pytest

from docs.site import tutorials

SCRIPTS = sorted(tutorials.FOLDER.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_tutorial_runs_and_its_page_shows_the_same(script):
    page = script.with_suffix(".md").read_text()
    printed = tutorials.outputs(script)
    expected = tutorials.page(script, printed)
    assert tutorials.code_of(page) == tutorials.code_of(expected), "run `make tutorials`"
    assert page.count("```text") == expected.count("```text")
    assert "nan" not in page
