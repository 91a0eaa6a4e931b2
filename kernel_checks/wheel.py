"""Wheels for older systems: g++ compiles the kernels as always, so that they keep their clones for
several instruction sets, and zig links them against the symbols of an old glibc. No container and
no old system is needed.
"""

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "wheel"
TOOLS = FOLDER / "tools" / "bin"  # `make wheel` installs them
GLIBC = (2, 28)  # as torch's own wheels
# -static-libstdc++ of CMakeLists.txt is what it would warn of: the runtime is given by its path
ZIG = ("-O2", "-fPIC", "-shared", "-Wl,-z,defs", "-Wno-unused-command-line-argument")
OURS = {"evalgrad_kernels", "evalgrad_error"}


@dataclass(frozen=True)
class Target:
    """A kind of processor that a wheel is for."""

    machine: str

    @property
    def compiler(self) -> str:
        return f"{self.machine}-linux-gnu-g++"

    @property
    def foreign(self) -> bool:
        return platform.machine() != self.machine

    def missing(self) -> str | None:
        tools = [self.compiler, "readelf", str(TOOLS / "auditwheel")]
        return next((Path(tool).name for tool in tools if shutil.which(tool) is None), None)

    def file(self, name: str) -> Path:
        """A file that comes with the compiler."""
        command = [self.compiler, f"-print-file-name={name}"]
        return Path(subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.strip())

    def run_by(self) -> tuple[str, ...]:
        """What a program for it has to be started with."""
        if not self.foreign:
            return ()
        return f"qemu-{self.machine}", "-L", str(self.file("libc.so.6").resolve().parents[1])


TARGETS = (Target("x86_64"), Target("aarch64"))


def link_rule(target: Target) -> str:
    """How CMake links the library: with all that g++ would add, but for its unwinder, which asks
    for a newer glibc since version 12.
    """
    system = f"{target.machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    zig = _quoted(TOOLS / "python", "-m", "ziglang", "cc", "-target", system, *ZIG)
    runtime = [target.file("libstdc++.a"), target.file("libgcc.a"), "-lunwind"]
    libraries = [*runtime, "-lm", "-lpthread", "-ldl"]
    # with these two, glibc forgets what the library has registered when it is unloaded
    first, last = target.file("crtbeginS.o"), target.file("crtendS.o")
    after = _quoted(ROOT / "kernel_checks" / "old_glibc.c", *libraries, last)
    return f"{zig} <LINK_FLAGS> -o <TARGET> {_quoted(first)} <OBJECTS> <LINK_LIBRARIES> {after}"


def _quoted(*parts: object) -> str:
    return shlex.join(map(str, parts))


def clear(target: Target) -> None:
    """Remove what an earlier run has left in the folder of its wheels."""
    if (folder := FOLDER / target.machine).exists():
        shutil.rmtree(folder)


def built(target: Target) -> Path:
    """The wheel as pip builds it, and the only file in its folder, which must be clear."""
    folder = FOLDER / target.machine
    rule = {"CMAKE_CXX_CREATE_SHARED_MODULE": link_rule(target)}
    define = {"CMAKE_CXX_COMPILER": target.compiler, **rule}
    if target.foreign:
        define |= {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": target.machine}
    options = [part for name in define for part in ("-C", f"cmake.define.{name}={define[name]}")]
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder / "linux")]
    caches = {f"ZIG_{kind}_CACHE_DIR": str(FOLDER / "zig") for kind in ("GLOBAL", "LOCAL")}
    environment = {**os.environ, **caches, "EVALGRAD_REQUIRE_NATIVE": "1"}
    subprocess.run([*pip, *options, str(ROOT)], env=environment, check=True)
    (wheel,) = (folder / "linux").iterdir()
    return wheel


def tagged(target: Target, wheel: Path) -> Path:
    """With the tag of the oldest glibc that it runs on, as auditwheel finds it."""
    environment = {**os.environ, "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"}

    def run(*command: str | Path) -> None:
        whole = [str(TOOLS / "python"), "-m", *map(str, command)]
        subprocess.run(whole, env=environment, check=True, stdout=subprocess.DEVNULL)

    # pip names this machine, whichever the compiler is for
    run("wheel", "tags", "--remove", "--platform-tag", f"linux_{target.machine}", wheel)
    (renamed,) = wheel.parent.iterdir()
    folder = FOLDER / target.machine
    run("auditwheel", "repair", "-w", folder, renamed)
    (repaired,) = folder.glob("*.whl")
    subprocess.run([str(TOOLS / "auditwheel"), "show", str(repaired)], check=True)
    return repaired


def glibc_of(wheel: Path) -> tuple[int, int]:
    """The oldest glibc that its tag allows."""
    found = re.findall(r"manylinux_(\d+)_(\d+)_", wheel.name)
    return min(((int(major), int(minor)) for major, minor in found), default=(999, 0))


def library_of(wheel: Path) -> Path:
    """Its compiled library, unpacked once: to write it anew would be felt where it is loaded."""
    folder = wheel.parent / "unpacked"
    if not folder.exists():
        zipfile.ZipFile(wheel).extract("evalgrad/_kernels.so", folder)
    return folder / "evalgrad" / "_kernels.so"


def exported(library: Path) -> set[str]:
    """The symbols that it defines for others."""
    rows = [line.split() for line in _readelf("--dyn-syms", library)]
    return {row[-1] for row in rows if len(row) > 7 and row[4] != "LOCAL" and row[-2].isdigit()}


def clones(library: Path) -> int:
    """Functions whose instruction set is chosen when it is loaded."""
    return sum("_IRELATIV" in line for line in _readelf("--relocs", library))


def _readelf(option: str, library: Path) -> list[str]:
    command = ["readelf", option, "--wide", str(library)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split("\n")


def faults(wheel: Path, peer: Path | None) -> list[str]:
    """What a wheel must not be; its clones are compared with those of an ordinary build."""
    library, found = library_of(wheel), []
    if glibc_of(wheel) > GLIBC:
        found.append("needs glibc {}.{}".format(*glibc_of(wheel)))
    if exported(library) != OURS:
        found.append(f"exports {sorted(exported(library))}, not {sorted(OURS)}")
    if peer is not None and clones(library) != clones(peer):
        found.append(f"has {clones(library)} cloned functions, not {clones(peer)}")
    return found
