"""The file of the kernels: one that is missing, broken, foreign or stale is warned of, and the
pure-torch cores do the work; a right one shows two symbols and nothing else.
"""

import _ctypes
import platform
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import pytest

from evalgrad import _native

NAME = "_kernels.so"
built = [entry for entry in files("evalgrad").iterdir() if entry.name == NAME]
needs_library = pytest.mark.skipif(not built, reason="built without kernels")


def loaded(monkeypatch, folder):
    monkeypatch.setattr(_native, "files", lambda package: folder)
    return _native._load()


@pytest.mark.parametrize("content", [b"", b"\0" * 5000, b"\x7fELF\x02\x01" + b"\1" * 5000])
def test_a_broken_library_is_warned_of(monkeypatch, tmp_path, content):
    (tmp_path / NAME).write_bytes(content)
    with pytest.warns(RuntimeWarning, match=rf"{NAME} is broken or of another .* Reinstall"):
        assert loaded(monkeypatch, tmp_path) == (None, {})


@needs_library
@pytest.mark.parametrize("left", [6, 45, 60, 63, 64, 0.1, 0.5, 0.99])
def test_a_library_that_was_cut_off_does_not_kill_the_process(monkeypatch, tmp_path, left):
    content = built[0].read_bytes()
    size = left if left >= 1 else int(left * len(content))
    (tmp_path / NAME).write_bytes(content[:size])
    with pytest.warns(RuntimeWarning, match="it is cut off"):
        assert loaded(monkeypatch, tmp_path) == (None, {})


def test_a_foreign_library_is_warned_of(monkeypatch, tmp_path):
    shutil.copy(_ctypes.__file__, tmp_path / NAME)
    with pytest.warns(RuntimeWarning, match="undefined symbol: evalgrad_kernels"):
        assert loaded(monkeypatch, tmp_path) == (None, {})


@needs_library
def test_a_stale_library_is_warned_of(monkeypatch, tmp_path):
    shutil.copy(str(built[0]), tmp_path / NAME)
    monkeypatch.setattr(_native, "TABLE", _native.TABLE ^ 1)
    with pytest.warns(RuntimeWarning, match=f"its table is {_native.TABLE ^ 1:#010x}, not"):
        assert loaded(monkeypatch, tmp_path) == (None, {})


def test_a_table_of_unknown_types_is_of_another_build():
    lines = (_native._Entry * 2)((b"rows", b"Zqi", None), (None, None, None))
    other = SimpleNamespace(evalgrad_kernels=lambda: lines, evalgrad_error=lambda: b"")
    with pytest.raises(ValueError, match=r"its table is 0x[0-9a-f]{8}, not"):
        _native._read_table(other)


def test_a_build_without_kernels_says_so(monkeypatch, tmp_path):
    (tmp_path / "_kernels.so.old").write_bytes(b"a backup is no library")
    with pytest.warns(RuntimeWarning, match="there are no compiled kernels. On the CPU the losses"):
        assert loaded(monkeypatch, tmp_path) == (None, {})


@needs_library
@pytest.mark.skipif(shutil.which("nm") is None, reason="nm lists symbols, and is missing")
def test_only_our_symbols_are_exported():
    listed = ["nm", "-D", "--defined-only", "--format=posix", str(built[0])]
    lines = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {line.split()[0] for line in lines} == {"evalgrad_kernels", "evalgrad_error"}


def glibc_of(content):
    """The newest glibc that an ELF library asks for, by the versions that it names."""
    named = re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?=[.\0])", content)
    return max((int(major), int(minor)) for major, minor in named)


@needs_library
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_the_library_asks_for_no_newer_glibc_than_the_page_says():
    page = (Path(__file__).parents[1] / "docs" / "releasing.md").read_text()
    stated = re.search(r"built on Debian 12 needs\s+glibc (\d+)\.(\d+)", page)
    assert glibc_of(built[0].read_bytes()) <= tuple(map(int, stated.groups()))
    system = tuple(map(int, platform.libc_ver()[1].split(".")))
    assert (2, 2) < glibc_of(built[0].read_bytes()) <= system
