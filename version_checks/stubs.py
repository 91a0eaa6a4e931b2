"""Stand-ins for the CUDA libraries that a torch wheel is linked with.

The registry has CPU builds of few versions. The others start without a GPU if the loader finds
libraries of the right names; all that is ever asked of them is how many devices there are.
"""

import re
import subprocess
from collections import defaultdict
from pathlib import Path

NO_DEVICE = 100  # what CUDA answers on a machine without a GPU
CUDA = re.compile(r"(__)?(cu|nv|nccl)")


def _symbols(kind: str, libraries: list[Path]) -> dict[str, str]:
    """The dynamic symbols of that kind, with the version that is asked for."""
    command = ["nm", "-D", f"--{kind}-only", *map(str, libraries)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    names = (line.split()[-1] for line in lines if line and not line.endswith(":"))
    return {name: version for name, _, version in (whole.partition("@") for whole in names)}


def missing_libraries(libraries: list[Path]) -> set[str]:
    """What the loader would look for in vain."""
    found = (subprocess.run(["ldd", path], capture_output=True, text=True) for path in libraries)
    lines = (line for one in found for line in one.stdout.splitlines())
    return {line.split()[0] for line in lines if line.endswith("=> not found")}


def _source_and_versions(libraries: list[Path]) -> tuple[str, str]:
    """The functions in C, and the linker's script that gives them their versions."""
    wanted, defined = _symbols("undefined", libraries), _symbols("defined", libraries)
    names = sorted(name for name in wanted if CUDA.match(name) and name not in defined)
    nodes = defaultdict(list)
    for name in names:
        if wanted[name]:
            nodes[wanted[name]].append(name)
    source = "".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in names)
    return source, "".join(f"{node} {{ {'; '.join(of)}; }};\n" for node, of in nodes.items())


def add_stubs(folder: Path) -> set[str]:
    """Puts a library that knows of no device beside torch's, under every missing name."""
    libraries = [path for path in folder.glob("*.so*") if path.is_file()]
    missing = missing_libraries(libraries)
    if not missing:  # a CPU build
        return missing
    source, script, stub = (folder / f"stub.{ending}" for ending in ("c", "map", "so"))
    texts = _source_and_versions(libraries)
    source.write_text(texts[0])
    script.write_text(texts[1])
    versions = [f"-Wl,--version-script={script}"] if texts[1] else []
    command = ["cc", "-shared", "-fPIC", "-w", "-fno-builtin", *versions, source, "-o", stub]
    subprocess.run(command, check=True)
    for name in missing:
        (folder / name).symlink_to(stub.name)
    return missing
