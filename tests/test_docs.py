"""What README and docs show runs as shown."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from evalgrad import cli
from evalgrad.lab import tasks

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
BLOCKS = [(page, i, code) for page in PAGES for i, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))]


@pytest.mark.parametrize(("page", "number", "code"), BLOCKS, ids=[f"{page.name}-{i}" for page, i, _ in BLOCKS])
def test_code_in_pages_runs(page, number, code):
    exec(compile(code, f"{page.name} block {number}", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert link.startswith("http") or (page.parent / link).exists(), link


def test_commands_of_the_training_page_run(tmp_path, monkeypatch):
    """Every line of its shell examples, in order, with fewer images and epochs."""
    monkeypatch.chdir(tmp_path)
    lines = "".join(re.findall(r"```sh\n(.*?)```", (ROOT / "docs/train.md").read_text(), re.S)).splitlines()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for line in lines:
        command, *arguments = shlex.split(line)
        if command == "python":
            subprocess.run([sys.executable, ROOT / arguments[0], *arguments[1:], "--count", "20"], check=True)
        else:
            assert cli.main([argument if argument != "20" else "1" for argument in arguments]) == 0
    torch.set_num_threads(threads)
    assert len(list((tmp_path / "masks").iterdir())) == 20
    assert (tmp_path / "scores" / "predictions.csv").exists()


def test_the_lab_page_names_every_task():
    page = (ROOT / "docs/lab.md").read_text()
    assert all(f"`{name}`" in page for name in tasks.TASKS)
