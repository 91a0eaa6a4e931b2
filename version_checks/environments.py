"""The versions that are tried, and how an environment of each is made under build/matrix."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from version_checks.stubs import add_stubs

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "matrix"
TOOLS = (
    *("hypothesis", "mpmath", "numpy", "pytest", "pytest-xdist"),
    *("scikit-learn", "scipy", "torchmetrics"),
)
GPU = re.compile(r"Requires-Dist: (nvidia|cuda|triton)")


class NotInRegistryError(Exception):
    """A torch that pip does not find: that environment is left out, and the page says so."""


@dataclass(frozen=True)
class Environment:
    """One Python with one torch; with `lab`, the lab's tests run too, on that lightning. Of all
    tests only those that match `only`, an expression of pytest's -k.
    """

    python: str
    torch: str
    lab: str | None = None
    only: str = ""

    @property
    def name(self) -> str:
        return "slice" if self.only else f"{self.python}-{self.torch}"

    @property
    def folder(self) -> Path:
        return BUILD / self.name

    @property
    def executable(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def left_out(self) -> Path:
        """A file that says why the environment could not be tried."""
        return self.folder / "left_out.txt"

    def pip(self, *arguments: str) -> None:
        command = [self.executable, "-m", "pip", "install", "-q", "--no-compile", *arguments]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        print(done.stderr, end="", file=sys.stderr)
        done.check_returncode()


# The first is the floor of everything that pyproject.toml declares, the last the newest torch;
# 3.11 with the torch of constraints.txt is what `make test` runs.
ENVIRONMENTS = (
    Environment("3.10", "2.6.0", lab="lightning==2.4.0"),
    Environment("3.11", "2.8.0"),
    Environment("3.12", "2.10.0"),
    Environment("3.13", "2.15.0", lab="lightning"),
)
# The floor on one loss of each system and a training, for .ci/run.
SLICE = replace(
    ENVIRONMENTS[0],
    only="(lovasz_softmax] or loss_max_pooling] or smooth_topk] or direct_average_precision]"
    " or test_s_measures_engines and (opcheck or forward_mode or definition)"
    " or test_train_learns_and_evaluate_measures_the_same) and not keep_no_memory",
)


def interpreter(version: str) -> str | None:
    """A Python of that version: from PATH, or one of pyenv's, whose links may refuse to start."""
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for candidate in (shutil.which(f"python{version}"), *map(str, found)):
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    return None


def wheel() -> Path:
    """One wheel with the kernels, which must serve every environment."""
    folder = BUILD / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    command = ["pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    kernels = {**os.environ, "EVALGRAD_REQUIRE_NATIVE": "1"}
    subprocess.run([sys.executable, "-m", *command], check=True, env=kernels)
    return next(folder.glob("*.whl"))


def drop_gpu_packages(torch: Path) -> None:
    """Lets pip forget that this torch asks for several GB of CUDA packages and for triton."""
    for metadata in torch.parent.glob("torch-*.dist-info/METADATA"):
        lines = metadata.read_text().splitlines(keepends=True)
        metadata.write_text("".join(line for line in lines if not GPU.match(line)))


def make(environment: Environment, python: str, built: Path) -> None:
    """A new environment with that torch, the wheel and what the tests need."""
    shutil.rmtree(environment.folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", environment.folder], check=True)
    try:
        environment.pip("--no-deps", f"torch=={environment.torch}")
    except subprocess.CalledProcessError as error:
        if "No matching distribution found" not in error.stderr:
            raise
        why = f"the registry lacks torch {environment.torch} for Python {environment.python}"
        environment.left_out.write_text(why)
        raise NotInRegistryError(why) from error
    torch = next(environment.folder.glob("lib/python*/site-packages/torch"))
    drop_gpu_packages(torch)
    add_stubs(torch / "lib")
    needed = [f"{built}[lab]", environment.lab] if environment.lab else [str(built)]
    environment.pip(f"torch=={environment.torch}", *needed, *TOOLS)
