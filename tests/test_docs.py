"""What README and docs show runs as shown."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import ranks
import torch

from evalgrad import metrics
from evalgrad_lab import cli, tasks

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
BLOCKS = [
    (page, i, code)
    for page in PAGES
    if page.parent.name != "tutorials"  # whose blocks go together: test_tutorials.py
    for i, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
]


@pytest.mark.parametrize(
    ("page", "number", "code"), BLOCKS, ids=[f"{page.name}-{i}" for page, i, _ in BLOCKS]
)
def test_code_in_pages_runs(page, number, code):
    exec(compile(code, f"{page.name} block {number}", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert link.startswith("http") or (page.parent / link).exists(), link


@pytest.mark.parametrize("name", ["jaccard_index", "dice"])
def test_the_guide_measures_the_foreground_of_binary_images(name):
    """As the losses of these rows do; the background alone would look good."""
    guide = (ROOT / "docs/guide.md").read_text()
    (call,) = re.findall(rf'`(metrics\.{name}\(.*over="image".*)`', guide)
    true, found = torch.rand(2, 3, 6, 7).round().bool().unbind()
    hits, sizes = ((x.flatten(1).sum(1).double()) for x in (true & found, true.long() + found))
    expected = hits / (sizes - hits) if name == "jaccard_index" else 2 * hits / sizes
    value = eval(call.replace("...", "found.long(), true.long()"), {**locals(), "metrics": metrics})
    torch.testing.assert_close(value, expected.mean())


def test_commands_of_the_training_page_run(tmp_path, monkeypatch):
    """Every line of its shell examples, in order, with fewer images and epochs."""
    monkeypatch.chdir(tmp_path)
    lines = "".join(
        re.findall(r"```sh\n(.*?)```", (ROOT / "docs/train.md").read_text(), re.S)
    ).splitlines()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for line in lines:
        command, *arguments = shlex.split(line)
        if command == "python":
            subprocess.run(
                [sys.executable, ROOT / arguments[0], *arguments[1:], "--count", "20"], check=True
            )
        else:
            assert cli.main([argument if argument != "20" else "1" for argument in arguments]) == 0
    torch.set_num_threads(threads)
    assert len(list((tmp_path / "masks").iterdir())) == 20
    assert (tmp_path / "scores" / "predictions.csv").exists()


@pytest.mark.parametrize(
    "name", ["plain_loop", "lightning_module", "hugging_face_trainer", "micro_batches"]
)
def test_training_example_runs(name):
    command = [sys.executable, str(ROOT / f"docs/examples/{name}.py")]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert re.search(r"loss|steps", result.stdout)


def _example(rank, world, name):
    return runpy.run_path(str(ROOT / f"docs/examples/{name}.py"))["value"].item()


def test_plain_loop_has_one_loss_on_all_ranks():
    one, two = ranks.run(2, _example, "plain_loop")
    assert isinstance(one, float), one
    assert one == two


def test_errors_without_the_global_batch_are_as_the_page_says():
    script = runpy.run_path(str(ROOT / "benchmarks/distributed.py"))
    page = (ROOT / "docs/distributed.md").read_text()
    for name, (draw, loss) in script["ROWS"].items():
        written = float(page.partition(f"| {name} | ")[2].partition(" %")[0])
        errors = [100 * script["error"](draw, loss, 2, seed) for seed in script["SEEDS"]]
        assert sum(errors) / len(errors) == pytest.approx(written, rel=0.02, abs=0.06), name


def test_the_lab_page_names_every_task():
    page = (ROOT / "docs/lab.md").read_text()
    assert all(f"`{name}`" in page for name in tasks.TASKS)
