"""`python -m kernel_checks sanitizers|compilers|warnings|wheel`: a line of each build says what a
replay of recorded calls found, and of the same calls with disturbed tensors. What a machine lacks,
a compiler or an emulator, is said and left out.
"""

import argparse
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from kernel_checks import wheel
from kernel_checks.wheel import Target

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "kernel_checks"
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wno-psabi", "-Werror"]
# as in CMakeLists.txt; there nothing is an error
MATHS = ["-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"]
ONE = "-DEVALGRAD_ONE_INSTRUCTION_SET"  # sanitizers are not ready when the loader chooses clones


@dataclass(frozen=True)
class Variant:
    """One way to build the kernels with the replay, and to run it."""

    name: str
    compiler: str
    flags: tuple[str, ...]
    threads: tuple[int, ...]
    emulator: tuple[str, ...] = ()
    library: Path | None = None  # of kernels that were compiled before

    def missing(self) -> str | None:
        needed = [self.compiler, *self.emulator[:1]]
        return next((tool for tool in needed if shutil.which(tool) is None), None)


LONGEST = 3600  # seconds of a replay: one that takes longer hangs
UNDEFINED = "-fsanitize=address,undefined,float-cast-overflow,float-divide-by-zero"
# A vector or scratch memory that is larger than its contents would hide a step beyond them.
EXACT = ("-DEVALGRAD_EXACT_MEMORY", "-D_GLIBCXX_ASSERTIONS", "-D_GLIBCXX_SANITIZE_VECTOR")
SANITIZERS = (
    Variant(
        "address and undefined behaviour",
        "g++",
        ("-O1", "-g", UNDEFINED, "-fno-sanitize-recover=all", ONE, *EXACT),
        (1, 3),
    ),
    Variant("threads", "g++", ("-O1", "-g", "-fsanitize=thread", ONE), (4,)),
)
COMPILERS = (
    Variant("g++", "g++", ("-O3",), (1, 2, 5)),
    Variant("g++, one instruction set", "g++", ("-O3", ONE), (1, 2, 5)),
    Variant("g++-11", "g++-11", ("-O3",), (1, 2, 5)),
    Variant("clang++-16", "clang++-16", ("-O3",), (1, 2, 5)),
    Variant("clang++", "clang++", ("-O3",), (1, 2, 5)),
    Variant("aarch64", "aarch64-linux-gnu-g++", ("-O3", "-static"), (1, 2, 5), ("qemu-aarch64",)),
)


def sources() -> list[str]:
    """All files of the kernels."""
    return sorted(str(path) for path in (ROOT / "csrc").rglob("*.cpp"))


def write_signatures() -> None:
    """The header that calls a kernel with arguments of its types."""
    from evalgrad import _native

    kinds = {"i": ("int64_t", "integer"), "r": ("double", "real")}
    lines = []
    for types in sorted({kernel.types for kernel in _native.kernels.values()}):
        parts = [kinds.get(letter, ("void*", "pointer")) for letter in types]
        passed = ", ".join(kind for kind, _ in parts)
        given = ", ".join(f"values[{i}].{field}" for i, (_, field) in enumerate(parts))
        cast = f"reinterpret_cast<int (*)({passed}, int64_t)>(function)"
        lines.append(f'    if (types == "{types}") return {cast}({given}, threads);')
    head = "inline int dispatch(const std::string& types, void (*function)(), const Value* values,"
    body = [head, "                    int64_t threads) {", *lines, "    return -1;", "}", ""]
    (BUILD / "signatures.h").write_text("\n".join(body))


def checked(variant: Variant, calls: Path, fuzzing: float) -> bool:
    """Build and replay; what came of it is printed."""
    if tool := variant.missing():
        print(f"{variant.name}: {tool} is missing; not tried")
        return True
    program, start = BUILD / variant.name.replace(" ", "_").replace(",", ""), time.monotonic()
    flags = ["-std=c++17", *variant.flags, *MATHS, "-Wno-psabi", "-pthread"]
    folders = [f"-I{ROOT / 'csrc'}", f"-I{BUILD}"]
    replay = str(ROOT / "kernel_checks" / "replay.cpp")
    kernels = [str(variant.library)] if variant.library else sources()
    command = [variant.compiler, *flags, *folders, replay, *kernels, "-ldl", "-o", str(program)]
    subprocess.run(command, check=True)
    built = time.monotonic()
    run = [str(program), str(calls), str(fuzzing), *map(str, variant.threads)]
    try:
        done = subprocess.run(
            [*variant.emulator, *run], capture_output=True, text=True, timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        print(f"{variant.name}: FAILED, not at its end after {LONGEST} s")
        return False
    said = (done.stdout + done.stderr).strip()
    times = f"built in {built - start:.0f} s, run in {time.monotonic() - built:.0f} s"
    print(f"{variant.name}: {'clean' if not done.returncode else 'FAILED'}, {times}: {said}")
    return not done.returncode


def recorded(seconds: float) -> bool:
    """Record calls, and whether there are some of every kernel."""
    from evalgrad import _native
    from kernel_checks.record import record

    BUILD.mkdir(parents=True, exist_ok=True)
    write_signatures()
    counts = record(BUILD / "calls", seconds)
    said = {f"{name} {types}": count for (name, types), count in counts.items()}
    print(f"recorded {sum(counts.values())} calls: {said}", flush=True)
    if unseen := {(kernel.name, kernel.types) for kernel in _native.kernels.values()} - set(counts):
        names = sorted(f"{name} {types}" for name, types in unseen)
        print(f"not called, and so not checked: {', '.join(names)}")
        return False
    return True


def replayed(variants: tuple[Variant, ...], seconds: float, fuzzing: float) -> bool:
    """Record calls, replay them in all variants and disturb them; whether all are clean."""
    if not recorded(seconds):
        return False
    clean = [checked(variant, BUILD / "calls", fuzzing) for variant in variants]  # all of them
    return all(clean)


def warned() -> bool:
    """Whether a compiler has anything to say, all warnings being errors."""
    right = True
    for compiler in ("g++", "clang++"):
        if shutil.which(compiler) is None:
            print(f"{compiler} is missing; not tried")
            continue
        # Compiled as in a wheel: some warnings, such as of what may be uninitialised, come from
        # the optimiser alone.
        flags = ["-std=c++17", "-O3", *MATHS, *STRICT, f"-I{ROOT / 'csrc'}"]
        for source in sources():
            command = [compiler, *flags, "-c", source, "-o", "/dev/null"]
            right &= subprocess.run(command).returncode == 0
    return right


def wheels(seconds: float, fuzzing: float) -> bool:
    """Build wheels for older systems; whether this machine's own is among them, and their kernels
    are those of the ordinary build.
    """
    from evalgrad import _native

    for target in wheel.TARGETS:
        wheel.clear(target)  # a wheel of an earlier run would pass for one of this
    if _native.library is None:
        print("there are no compiled kernels to compare with; no wheel is built")
        return False
    variants, right, made = [], True, []
    for target in wheel.TARGETS:
        if tool := target.missing():
            print(f"wheel for {target.machine}: {tool} is missing; not built")
            continue
        path = wheel.tagged(target, wheel.built(target))
        faults = wheel.faults(path, None if target.foreign else Path(_native.library._name))
        said = "; ".join(faults) or "glibc, symbols and clones are right"
        print(f"{path.relative_to(ROOT)}: {said}", flush=True)
        right &= not faults
        made.append(target)
        variant = variant_of(target, wheel.library_of(path))
        if tool := variant.missing():
            print(f"{variant.name}: its kernels were not compared: {tool} is missing", flush=True)
        else:
            variants.append(variant)
    if all(target.foreign for target in made):
        print(f"there is no wheel for this machine's own processor, {platform.machine()}")
        right = False
    right = (not variants or replayed(tuple(variants), seconds, fuzzing)) and right
    for variant in variants:
        if not variant.emulator and right:
            print_times(variant)
    return right


def variant_of(target: Target, library: Path) -> Variant:
    """The replay with the kernels of a wheel."""
    name = f"wheel for {target.machine}"
    return Variant(name, target.compiler, ("-O1",), (1, 2, 5), target.run_by(), library)


def print_times(variant: Variant) -> None:
    """What the losses take with a wheel's kernels, against those that are installed."""
    from kernel_checks.speed import compared

    assert variant.library is not None
    for loss, (installed, copy, other) in compared(variant.library).items():
        ratio = f"{other / installed:.2f} of the installed build's"
        times = f"{1e3 * other:.3f} ms, {ratio}; a copy of that: {copy / installed:.2f}"
        print(f"{variant.name}: {loss}: {times}", flush=True)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m kernel_checks", description=__doc__)
    parser.add_argument("what", choices=["sanitizers", "compilers", "warnings", "wheel"])
    parser.add_argument("--seconds", type=float, default=30, help="of recording calls (30)")
    parser.add_argument("--fuzz", type=float, default=60, help="seconds of disturbed calls (60)")
    arguments = parser.parse_args()
    if arguments.what == "warnings":
        return not warned()
    if arguments.what == "wheel":
        return not wheels(arguments.seconds, arguments.fuzz)
    variants = SANITIZERS if arguments.what == "sanitizers" else COMPILERS
    return not replayed(variants, arguments.seconds, arguments.fuzz)


if __name__ == "__main__":
    sys.exit(main())
