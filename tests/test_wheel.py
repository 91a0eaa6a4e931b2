"""What is installed: the library and the lab, and nothing of the reproductions."""

import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
build = pytest.importorskip("scikit_build_core.build", reason="the build back end is not installed")


def test_the_wheel_holds_the_library_and_the_lab_and_no_reproductions(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    options = {"wheel.cmake": "false", "wheel.platlib": "false"}  # the compiler is not the question
    (wheel,) = [build.build_wheel(str(tmp_path), options)]
    names = zipfile.ZipFile(tmp_path / wheel).namelist()
    packages = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert packages == {"evalgrad", "evalgrad_lab"}
    for part in ("reproductions", "configs", "papers"):
        assert not [name for name in names if part in name.split("/")]
    for needed in ("evalgrad_lab/report/page.html", "evalgrad_lab/tasks/hyperparameters.json"):
        assert needed in names
