"""`python -m version_checks [NAME...]`: builds the environments, runs the tests there and writes
docs/versions.md from the results of all that were run. What a machine lacks is said and left out.
`slice` is a few minutes of the oldest versions, and leaves the page alone.
"""

import argparse
import json
import sys
from typing import Any

from version_checks.environments import (
    ENVIRONMENTS,
    SLICE,
    Environment,
    NotInRegistryError,
    interpreter,
    make,
    wheel,
)
from version_checks.page import PAGE, page
from version_checks.run import run


def results() -> tuple[list[dict[str, Any]], dict[str, str]]:
    """What the last run of each environment gave, and why some have none."""
    found, left_out = [], {}
    for environment in ENVIRONMENTS:
        path = environment.folder / "result.json"
        if path.exists():
            found.append(json.loads(path.read_text()))
        elif environment.left_out.exists():
            left_out[environment.name] = environment.left_out.read_text()
        elif interpreter(environment.python) is None:
            left_out[environment.name] = f"there was no Python {environment.python}"
        else:
            left_out[environment.name] = "not run"
    return found, left_out


def tried(chosen: list[Environment]) -> bool:
    """Builds and runs one after the other; whether nothing failed."""
    built, right = None, True
    for environment in chosen:
        python = interpreter(environment.python)
        if python is None:
            print(f"{environment.name}: python{environment.python} is missing; not tried")
            continue
        built = built or wheel()
        try:
            make(environment, python, built)
        except NotInRegistryError as error:
            print(f"{environment.name}: {error}; not tried")
            continue
        result = run(environment)
        right &= not result["failures"]
        print(f"{environment.name}: {result['counts']} in {result['seconds']} s", flush=True)
        for test in result["failures"]:
            print(f"  FAILED {test}")
    return right


def main() -> int:
    """The command."""
    names = [environment.name for environment in (*ENVIRONMENTS, SLICE)]
    parser = argparse.ArgumentParser(prog="python -m version_checks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(names)} (all but slice)")
    chosen = parser.parse_args().names
    if wrong := sorted(set(chosen) - set(names)):
        parser.error(f"there is no {', '.join(wrong)}; choose from {', '.join(names)}")
    whole = [one for one in ENVIRONMENTS if not chosen or one.name in chosen]
    right = tried([*whole, *([SLICE] if SLICE.name in chosen else [])])
    if whole:
        PAGE.write_text(page(*results()))
    return not right


if __name__ == "__main__":
    sys.exit(main())
