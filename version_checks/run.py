"""The tests in one environment, and what came of them."""

import json
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from version_checks.environments import ROOT, Environment

# What is run; with few Hypothesis examples, so that an environment takes minutes.
GROUPS = {
    "laws": ("test_laws",),
    "engines": ("test_engines", "test_function_engines", "test_s_measures_engines"),
    "systems": (
        *("test_lovasz", "test_loss_max_pooling", "test_smooth_topk", "test_direct_loss"),
        *(
            "test_s_measures_metrics",
            "test_s_measures_totals",
            "test_native",
            "test_native_library",
        ),
    ),
    "lab": ("test_lab_bad_days", "test_lab_train"),  # the second trains with lightning throughout
}
VERSIONS = """
import importlib.metadata as m, json, platform
names = {"torch", "lightning", "numpy"} & {d.name for d in m.distributions()}
print(json.dumps({"python": platform.python_version(), **{n: m.version(n) for n in sorted(names)}}))
"""


def files(environment: Environment) -> list[str]:
    """The test files that this environment can run."""
    groups = [group for group in GROUPS if group != "lab" or environment.lab]
    return [f"tests/{name}.py" for group in groups for name in GROUPS[group]]


def outcome(report: Path, code: int) -> dict[str, Any]:
    """What a pytest that ended with `code` found; one that died is a failure."""
    try:
        found = counted(report)
    except (OSError, ElementTree.ParseError):  # it was killed before its last line, or in it
        found = {"counts": {group: {} for group in GROUPS}, "reasons": {}, "failures": []}
    if code not in (0, 1) or (code == 1 and not found["failures"]):
        found["failures"].append(f"pytest ended with code {code}")
    return found


def counted(report: Path) -> dict[str, Any]:
    """Passed, failed and skipped tests of each group, and why tests were skipped."""
    of_file = {name: group for group, names in GROUPS.items() for name in names}
    counts = {group: Counter[str]() for group in GROUPS}
    reasons, failures = Counter[str](), []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        # a file that could not be imported has no class
        whole = case.get("classname") or case.get("name", "")
        name = whole.removeprefix("tests.").split(".")[0]
        skipped = case.find("skipped")
        failed = case.find("failure") is not None or case.find("error") is not None
        result = "failed" if failed else "passed" if skipped is None else "skipped"
        counts[of_file[name]][result] += 1
        if skipped is not None:
            reasons[skipped.get("message", "")] += 1
        elif failed:
            failures.append(f"{name}::{case.get('name')}")
    return {"counts": counts, "reasons": reasons, "failures": failures}


def run(environment: Environment) -> dict[str, Any]:
    """Runs the tests; what came of them is also written into the environment."""
    report, start = environment.folder / "report.xml", time.monotonic()
    report.unlink(missing_ok=True)
    # a warning of another torch or lightning is theirs; one of ours is an error in CI
    options = ["-q", "-o", "filterwarnings=default", "--disable-warnings", f"--junitxml={report}"]
    command = [environment.executable, "-m", "pytest", *options, "--hypothesis-profile=few"]
    only = ["-k", environment.only] if environment.only else []
    code = subprocess.run([*command, *only, *files(environment)], cwd=ROOT).returncode
    said = subprocess.run([environment.executable, "-c", VERSIONS], capture_output=True, text=True)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    result = {
        **{"name": environment.name, "versions": json.loads(said.stdout)},
        **outcome(report, code),
        **{"seconds": round(time.monotonic() - start), "commit": commit.stdout.strip()},
    }
    (environment.folder / "result.json").write_text(json.dumps(result, indent=1))
    return result
