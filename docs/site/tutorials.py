"""Runs the scripts of docs/tutorials and writes their pages: `make tutorials`.

A script is a page: its docstring is the title and the introduction, `# %%` begins a cell, the
comment under it is prose, the rest is code, and what the code prints is shown below it. A line
`Run: ...` of the docstring is the command that runs the script.
"""

import ast
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "tutorials"
MARK = "# ---- end of cell"


class Cell(NamedTuple):
    """Prose, and the code that it introduces."""

    prose: str
    code: str


def cells(script: Path) -> list[Cell]:
    """The cells of a script."""
    found = []
    for part in re.split(r"^# %%\n", script.read_text(), flags=re.M)[1:]:
        lines = part.split("\n")
        count = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
        prose = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[:count])
        found.append(Cell(prose.strip(), "\n".join(lines[count:]).strip()))
    return found


def introduction(script: Path) -> tuple[str, str, str]:
    """Title, text and command."""
    docstring = ast.get_docstring(ast.parse(script.read_text())) or ""
    title, _, text = docstring.partition("\n")
    command = re.search(r"^Run: (.*)$", text, re.M)
    assert command, f"{script} must say how it is run: `Run: python {script.name}`"
    return title.rstrip("."), text.replace(command[0], "").strip(), command[1]


def outputs(script: Path) -> list[str]:
    """What each cell prints, when the script is run as a whole."""
    head, *parts = re.split(r"^# %%\n", script.read_text(), flags=re.M)
    mark = f"\nimport os\nif os.environ.get('RANK', '0') == '0':\n    print({MARK!r}, flush=True)\n"
    python, *arguments = shlex.split(introduction(script)[2])
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / script.name
        copy.write_text(head + "".join(part + mark for part in parts))
        words = [str(copy) if word.endswith(script.name) else word for word in arguments]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        command = [sys.executable, *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert python == "python"
    return [part.strip() for part in done.stdout.split(MARK)[:-1]]


def page(script: Path, printed: list[str]) -> str:
    """The page of a script, with what its cells printed."""
    title, text, command = introduction(script)
    lines = [f"# {title}", "", text, ""]
    lines += [f"Written by `make tutorials` from [{script.name}]({script.name}); to run it:", ""]
    lines += ["```", command, "```", ""]
    for cell, said in zip(cells(script), printed, strict=True):
        lines += [cell.prose, ""] if cell.prose else []
        lines += ["```python", cell.code, "```", ""] if cell.code else []
        lines += ["```text", said, "```", ""] if said else []
    return "\n".join(lines)


def code_of(page: str) -> list[str]:
    """The code that a page shows."""
    return re.findall(r"^```python\n(.*?)\n```$", page, re.M | re.S)


if __name__ == "__main__":
    for script in sorted(FOLDER.glob(sys.argv[1] if len(sys.argv) > 1 else "*.py")):
        script.with_suffix(".md").write_text(page(script, outputs(script)))
        print(script.with_suffix(".md"))
