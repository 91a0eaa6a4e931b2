"""`make matrix`: its table, its page, and the libraries that stand in for CUDA's."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cases import CASES

from version_checks import __main__ as matrix
from version_checks import environments, page, run, stubs

ROOT = Path(__file__).parents[1]
TESTSUITE = """<testsuites><testsuite>
<testcase classname="tests.test_laws" name="a"/>
<testcase classname="tests.test_laws" name="b"><skipped message="no kernels"/></testcase>
<testcase classname="tests.test_engines" name="c[x]"><failure/></testcase>
<testcase classname="tests.test_lovasz.TestIt" name="d"><error/></testcase>
<testcase classname="" name="tests.test_native"><error/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def result(tmp_path):
    (tmp_path / "report.xml").write_text(TESTSUITE)
    versions = {"python": "3.10.1", "torch": "2.6.0"}
    more = {"name": "3.10-2.6.0", "versions": versions, "seconds": 130, "commit": "abc"}
    return {**run.counted(tmp_path / "report.xml"), **more}


def test_tests_are_counted_by_group(result):
    assert result["counts"]["laws"] == {"passed": 1, "skipped": 1}
    assert result["counts"]["engines"] == {"failed": 1}
    assert result["reasons"] == {"no kernels": 1}
    assert result["failures"] == [
        "test_engines::c[x]",
        "test_lovasz::d",
        "test_native::tests.test_native",
    ]


@pytest.mark.parametrize("content", [None, "", TESTSUITE[:90]])
def test_a_pytest_that_died_is_a_failure(tmp_path, content):
    if content is not None:
        (tmp_path / "report.xml").write_text(content)
    found = run.outcome(tmp_path / "report.xml", -11)
    assert found["failures"] == ["pytest ended with code -11"]
    more = {"name": "3.10-2.6.0", "versions": {"python": "3.10.1", "torch": "2.6.0"}}
    text = page.page([{**found, **more, "seconds": 2, "commit": "abc"}], {})
    assert "## Failed\n\n- 3.10-2.6.0: `pytest ended with code -11`" in text


def test_a_pytest_that_ended_in_order_is_as_its_report_says(tmp_path):
    (tmp_path / "report.xml").write_text(TESTSUITE)
    assert run.outcome(tmp_path / "report.xml", 1) == run.counted(tmp_path / "report.xml")
    assert "pytest ended with code 3" in run.outcome(tmp_path / "report.xml", 3)["failures"]


def test_a_torch_that_the_registry_lacks_is_left_out(tmp_path, monkeypatch, capsys):
    lacking, running = (environments.Environment("3.11", torch) for torch in ("9.9.9", "2.6.0"))
    monkeypatch.setattr(environments, "BUILD", tmp_path)
    monkeypatch.setattr(matrix, "ENVIRONMENTS", (lacking, running))
    monkeypatch.setattr(matrix, "interpreter", lambda version: "python")
    monkeypatch.setattr(matrix, "wheel", lambda: tmp_path / "evalgrad.whl")
    result = {"failures": [], "counts": {}, "seconds": 1}
    monkeypatch.setattr(matrix, "run", lambda environment: result)
    calls = []

    def installed(command, **_):
        calls.append(command)
        lacks = "torch==9.9.9" in command
        said = "ERROR: No matching distribution found for torch==9.9.9\n" * lacks
        for folder in [lacking.folder, running.folder]:
            (folder / "lib" / "python3" / "site-packages" / "torch" / "lib").mkdir(
                parents=True, exist_ok=True
            )
        return subprocess.CompletedProcess(command, int(lacks), stderr=said)

    monkeypatch.setattr(environments.subprocess, "run", installed)
    assert matrix.tried([lacking, running])
    assert calls[-1][-1] == environments.TOOLS[-1]  # the other one was made
    assert "3.11-9.9.9: the registry lacks torch 9.9.9" in capsys.readouterr().out
    assert matrix.results()[1]["3.11-9.9.9"].startswith("the registry lacks torch 9.9.9")


def test_a_python_that_is_missing_is_said_and_nothing_is_built(monkeypatch, capsys):
    monkeypatch.setattr(matrix, "interpreter", lambda version: None)
    monkeypatch.setattr(matrix, "wheel", lambda: pytest.fail("built"))
    monkeypatch.setattr(matrix.sys, "argv", ["version_checks", "slice"])
    assert matrix.main() == 0
    assert capsys.readouterr().out == "slice: python3.10 is missing; not tried\n"


def test_the_slice_leaves_the_page_and_the_whole_result_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(matrix, "interpreter", lambda version: "python")
    monkeypatch.setattr(matrix, "wheel", lambda: tmp_path / "evalgrad.whl")
    monkeypatch.setattr(matrix, "make", lambda *_: None)
    monkeypatch.setattr(matrix, "PAGE", tmp_path / "versions.md")
    monkeypatch.setattr(matrix, "results", lambda: ([], {}))
    ran = []

    def run(environment):
        ran.append(environment)
        return {"failures": [], "counts": {}, "seconds": 1}

    monkeypatch.setattr(matrix, "run", run)
    monkeypatch.setattr(matrix.sys, "argv", ["version_checks", "slice"])
    assert matrix.main() == 0
    assert ran == [environments.SLICE]
    assert not matrix.PAGE.exists()
    assert environments.SLICE.folder not in {one.folder for one in environments.ENVIRONMENTS}
    monkeypatch.setattr(matrix.sys, "argv", ["version_checks"])
    assert matrix.main() == 0
    assert ran[1:] == list(environments.ENVIRONMENTS)
    assert matrix.PAGE.exists()


def test_all_that_the_slice_names_is_there():
    only, oldest = environments.SLICE.only, environments.ENVIRONMENTS[0]
    assert (environments.SLICE.python, environments.SLICE.torch) == (oldest.python, oldest.torch)
    losses = set(re.findall(r"(\w+)\]", only))
    assert len(losses) == 4
    assert losses < {case.name for case in CASES}
    sources = "".join((ROOT / file).read_text() for file in run.files(environments.SLICE))
    for test in ("opcheck", "forward_mode", "definition", "measures_the_same"):
        assert test in only
        assert re.search(rf"def test_\w*{test}", sources)


def test_the_page_hides_nothing(result):
    text = page.page([result], {"3.13-2.15.0": "there was no Python 3.13"})
    assert "| 3.10.1 | 2.6.0 |  | 1 | 0, **1 failed** | 0, **2 failed** |  | 2 | abc |" in text
    for line in ("`test_engines::c[x]`", "once: no kernels", "there was no Python 3.13"):
        assert line in text


def test_what_is_declared_is_what_is_tried():
    project = (ROOT / "pyproject.toml").read_text()
    floor = r"(?:requires-)?{}[^>]{{0,4}}>=([0-9.]+)"
    names = ("python", "torch", "lightning")
    declared = {name: re.search(floor.format(name), project)[1] for name in names}
    tried = {name: version.removesuffix(".0") for name, version in page.floors().items()}
    assert declared == tried


def test_every_group_has_its_files():
    for names in run.GROUPS.values():
        for name in names:
            assert (ROOT / "tests" / f"{name}.py").exists()


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_stub_answers_for_a_missing_library(tmp_path):
    """A library whose own needs are not there can be loaded."""
    (tmp_path / "cuda.c").write_text("int cudaCount(void) { return 0; }\n")
    (tmp_path / "cuda.map").write_text("libcudart.so.9 { cudaCount; };\n")
    (tmp_path / "user.c").write_text("int cudaCount(void); int ask(void) { return cudaCount(); }\n")
    flags = ["cc", "-shared", "-fPIC", f"-L{tmp_path}"]
    cuda = tmp_path / "libcudart.so.9"
    script = f"-Wl,--version-script={tmp_path / 'cuda.map'},-soname,libcudart.so.9"
    subprocess.run([*flags, script, tmp_path / "cuda.c", "-o", cuda], check=True)
    user = tmp_path / "libuser.so"
    command = [*flags, tmp_path / "user.c", "-l:libcudart.so.9", "-Wl,-rpath,$ORIGIN", "-o", user]
    subprocess.run(command, check=True)
    cuda.unlink()
    assert stubs.add_stubs(tmp_path) == {"libcudart.so.9"}
    assert ctypes.CDLL(str(user)).ask() == stubs.NO_DEVICE
    assert stubs.add_stubs(tmp_path) == set()  # nothing is missing any more


def test_gpu_packages_are_forgotten(tmp_path):
    folder = tmp_path / "torch-2.6.0.dist-info"
    folder.mkdir()
    needs = ["filelock", "nvidia-nccl-cu12 (==2.21.5)", "triton (==3.2.0)", "sympy"]
    (folder / "METADATA").write_text("".join(f"Requires-Dist: {need}\n" for need in needs))
    environments.drop_gpu_packages(tmp_path / "torch")
    left = (folder / "METADATA").read_text()
    assert left == "Requires-Dist: filelock\nRequires-Dist: sympy\n"
