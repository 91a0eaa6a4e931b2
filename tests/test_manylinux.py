"""`make wheel`: what it makes of missing tools and old wheels, and which wheels it refuses."""

import platform
import re
import shutil
import sys
import zipfile
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from evalgrad import _native
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


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Of the wheels, where an earlier run has left one of each kind."""
    monkeypatch.setattr(wheel, "FOLDER", tmp_path)
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    for target in wheel.TARGETS:
        (tmp_path / target.machine).mkdir()
        packed(tmp_path / target.machine, "old", __file__)
    return tmp_path


@pytest.fixture
def building(monkeypatch, folder):
    """As with all tools, on the first target's machine; the replayed variants, as they come."""
    replayed = []
    monkeypatch.setattr(_native, "library", SimpleNamespace(_name=__file__))
    monkeypatch.setattr(platform, "machine", lambda: wheel.TARGETS[0].machine)
    monkeypatch.setattr(wheel.Target, "missing", lambda target: None)
    monkeypatch.setattr(wheel, "built", lambda target: folder / target.machine)
    monkeypatch.setattr(wheel, "tagged", lambda target, path: made(path))
    monkeypatch.setattr(wheel, "faults", lambda path, peer: [])
    monkeypatch.setattr(wheel.Target, "file", lambda target, name: folder / "lib" / name)
    monkeypatch.setattr(checks.Variant, "missing", lambda variant: None)
    monkeypatch.setattr(checks, "replayed", lambda variants, *_: replayed.extend(variants) or True)
    monkeypatch.setattr(checks, "print_times", lambda variant: None)
    return replayed


def made(folder):
    folder.mkdir()  # fails if there is an old one
    return packed(folder, "new", __file__)


def test_a_machine_without_the_tools_fails_says_so_and_keeps_no_old_wheel(
    monkeypatch, folder, capsys
):
    monkeypatch.setattr(wheel, "TOOLS", folder)
    monkeypatch.setattr(wheel, "built", lambda target: pytest.fail("built"))
    monkeypatch.setattr(sys, "argv", ["kernel_checks", "wheel"])
    assert checks.main() == 1
    assert not list(folder.rglob("*.whl"))
    lines = capsys.readouterr().out.splitlines()
    if _native.library is None:
        assert lines == ["there are no compiled kernels to compare with; no wheel is built"]
        return
    assert len(lines) == len(wheel.TARGETS) + 1
    assert all(line.endswith(" is missing; not built") for line in lines[:-1])
    assert lines[-1].startswith("there is no wheel for this machine's own processor")


def test_all_wheels_are_built_anew_and_replayed(building, folder):
    assert checks.wheels(seconds=0, fuzzing=0)
    names = {path.parent.name: path.name for path in folder.rglob("*.whl")}
    new = "evalgrad-0.1.0-py3-none-new.whl"
    assert names == {target.machine: new for target in wheel.TARGETS}
    assert [variant.name for variant in building] == [
        f"wheel for {target.machine}" for target in wheel.TARGETS
    ]


@pytest.mark.parametrize("own", [True, False])
def test_only_this_machines_own_wheel_must_be_built(monkeypatch, building, folder, capsys, own):
    monkeypatch.setattr(
        wheel.Target, "missing", lambda target: None if target.foreign == own else "tool"
    )
    assert checks.wheels(seconds=0, fuzzing=0) != own
    (path,) = folder.rglob("*.whl")
    first, second = (target.machine for target in wheel.TARGETS)
    lost, kept = (first, second) if own else (second, first)
    assert path.parent.name == kept
    said = capsys.readouterr().out
    assert f"wheel for {lost}: tool is missing; not built" in said
    assert (f"there is no wheel for this machine's own processor, {first}" in said) == own


def test_kernels_that_no_emulator_can_run_are_said_not_to_be_compared(
    monkeypatch, building, capsys
):
    monkeypatch.setattr(
        checks.Variant, "missing", lambda variant: variant.emulator[0] if variant.emulator else None
    )
    assert checks.wheels(seconds=0, fuzzing=0)
    first, second = (target.machine for target in wheel.TARGETS)
    said = capsys.readouterr().out
    assert f"wheel for {second}: its kernels were not compared: qemu-{second} is missing" in said
    assert [variant.name for variant in building] == [f"wheel for {first}"]


@pytest.mark.parametrize("tool", [None, "x86_64-linux-gnu-g++", "readelf", "auditwheel"])
def test_every_tool_is_asked_for(monkeypatch, tmp_path, tool):
    for name in {"x86_64-linux-gnu-g++", "readelf", "auditwheel"} - {tool}:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(wheel, "TOOLS", tmp_path)
    assert wheel.Target("x86_64").missing() == tool


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_programs_for_another_processor_are_emulated(monkeypatch, machine):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(wheel.Target, "file", lambda target, name: Path("/cross/lib") / name)
    run_by = {target.machine: target.run_by() for target in wheel.TARGETS}
    emulated = {other: (f"qemu-{other}", "-L", "/cross") for other in ("x86_64", "aarch64")}
    assert run_by == (emulated | {machine: ()} if machine in emulated else emulated)


@reads_libraries
def test_the_ordinary_library_exports_our_symbols_alone(tmp_path):
    path = packed(tmp_path, "manylinux_2_27_x86_64.manylinux_2_28_x86_64", built[0])
    assert wheel.faults(path, built[0]) == []


@reads_libraries
def test_a_newer_glibc_foreign_symbols_and_lost_clones_are_faults(tmp_path):
    path = packed(tmp_path, "manylinux_2_35_x86_64", torch._C.__file__)
    found = wheel.faults(path, built[0])
    assert found[0] == "needs glibc 2.35"
    assert "'PyInit__C'" in found[1]
    cloned = wheel.clones(built[0])
    assert found[2:] == ([f"has 0 cloned functions, not {cloned}"] if cloned else [])


@pytest.mark.parametrize("tag", ["linux_x86_64", "any"])
def test_a_wheel_without_a_manylinux_tag_promises_no_glibc(tmp_path, tag):
    assert wheel.glibc_of(tmp_path / f"evalgrad-0.1.0-py3-none-{tag}.whl") > wheel.GLIBC


@pytest.mark.parametrize(
    ("tag", "oldest"),
    [
        ("manylinux_2_27_x86_64", (2, 27)),
        ("manylinux_2_17_x86_64.manylinux_2_27_x86_64", (2, 17)),  # pip takes it for either
        ("manylinux_2_27_x86_64.manylinux_2_9_x86_64", (2, 9)),
    ],
)
def test_the_oldest_glibc_of_several_tags_is_what_a_wheel_promises(tmp_path, tag, oldest):
    assert wheel.glibc_of(tmp_path / f"evalgrad-0.1.0-py3-none-{tag}.whl") == oldest


def test_containers_and_the_page_name_the_same_glibc():
    stated = "manylinux_{}_{}".format(*wheel.GLIBC)
    settings = (wheel.ROOT / "pyproject.toml").read_text()
    assert set(re.findall(r'image = "(\w+)"', settings)) == {stated}
    assert stated in (wheel.ROOT / "docs" / "releasing.md").read_text()
