"""`make wheel`: what it says of a machine without its tools, and which wheels it refuses."""

import _ctypes
import re
import shutil
import zipfile
from importlib.resources import files

import pytest

from kernel_checks import __main__ as checks
from kernel_checks import wheel

built = [entry for entry in files("evalgrad").iterdir() if entry.name == "_kernels.so"]
reads_libraries = pytest.mark.skipif(
    not built or shutil.which("readelf") is None, reason="there are no kernels, or no readelf"
)


def packed(folder, tag, library):
    path = folder / f"evalgrad-0.1.0-py3-none-{tag}.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.write(str(library), "evalgrad/_kernels.so")
    return path


def test_a_machine_without_the_tools_builds_no_wheel_and_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(wheel, "TOOLS", tmp_path)
    monkeypatch.setattr(wheel, "built", lambda target: pytest.fail("built"))
    assert checks.wheels(seconds=0, fuzzing=0)
    lines = capsys.readouterr().out.splitlines()
    if built:
        assert len(lines) == len(wheel.TARGETS)
        assert all(line.endswith(" is missing; not built") for line in lines)
    else:
        assert lines == ["there are no compiled kernels to compare with; no wheel is built"]


@reads_libraries
def test_the_ordinary_library_exports_our_symbols_alone(tmp_path):
    path = packed(tmp_path, "manylinux_2_27_x86_64.manylinux_2_28_x86_64", built[0])
    assert wheel.faults(path, built[0]) == []


@reads_libraries
def test_a_newer_glibc_foreign_symbols_and_lost_clones_are_faults(tmp_path):
    path = packed(tmp_path, "manylinux_2_35_x86_64", _ctypes.__file__)
    found = wheel.faults(path, built[0])
    assert found[0] == "needs glibc 2.35"
    assert "'PyInit__ctypes'" in found[1]
    cloned = wheel.clones(built[0])
    assert found[2:] == ([f"has 0 cloned functions, not {cloned}"] if cloned else [])


@pytest.mark.parametrize("tag", ["linux_x86_64", "any"])
def test_a_wheel_without_a_manylinux_tag_promises_no_glibc(tmp_path, tag):
    assert wheel.glibc_of(tmp_path / f"evalgrad-0.1.0-py3-none-{tag}.whl") > wheel.GLIBC


def test_containers_and_the_page_name_the_same_glibc():
    stated = "manylinux_{}_{}".format(*wheel.GLIBC)
    settings = (wheel.ROOT / "pyproject.toml").read_text()
    assert set(re.findall(r'image = "(\w+)"', settings)) == {stated}
    assert stated in (wheel.ROOT / "docs" / "releasing.md").read_text()
