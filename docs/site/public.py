"""Every public name, and what its docstring must have: its arguments and an example that runs.

The reference is built from this list, and `tests/test_reference.py` and `make site` fail on a name
that is not documented.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from evalgrad.s_measures.module import Options as MeasureOptions

# Where public names live, and the page of the reference that shows them: its title and its guide.
PAGES = {
    "evalgrad.lovasz": ("Lovász losses", "lovasz.md"),
    "evalgrad.loss_max_pooling": ("Loss max-pooling", "loss_max_pooling.md"),
    "evalgrad.smooth_topk": ("Smooth top-k", "smooth_topk.md"),
    "evalgrad.direct_loss": ("Direct loss minimisation", "direct_loss.md"),
    "evalgrad.s_measures": ("S-measures", "s_measures.md"),
    "evalgrad.baselines": ("Baselines", "baselines.md"),
    "evalgrad.sampling": ("Sampling", "sampling.md"),
    "evalgrad.metrics": ("Metrics", "metrics.md"),
    "evalgrad.decisions": ("Decisions", "decisions.md"),
    "evalgrad.distributed": ("Distributed", "distributed.md"),
    "evalgrad_lab": ("The lab", "train.md"),
}
ROOMS = ("metrics", "decisions", "distributed")  # reached by evalgrad.<room>.<name>

ENTRY = re.compile(r"^    (\w+)(?: \([^)]*\))?: ", re.M)


class Public(NamedTuple):
    """A public name: where it is defined, how a user spells it, and what it is."""

    package: str
    name: str
    value: Any

    @property
    def spelled(self) -> str:
        room = self.package.partition(".")[2]
        return f"{self.package if room in ROOMS or not room else 'evalgrad'}.{self.name}"

    @property
    def docstring(self) -> str:
        return inspect.cleandoc(self.value.__doc__ or "")


def names() -> Iterator[Public]:
    """All of them, by the `__all__` of the packages."""
    for package in PAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            yield Public(package, name, getattr(module, name))


def parameters(value: Any) -> list[str]:
    """The arguments of a function or of a constructor; `**options` are the S-measures'."""
    found = []
    for one in inspect.signature(value).parameters.values():
        if one.kind is one.VAR_KEYWORD:
            found += MeasureOptions.__annotations__
        else:
            found.append(one.name)
    return found


def section(docstring: str, *titles: str) -> str:
    """The indented lines under a title such as `Args:`; "" without one."""
    found = re.search(rf"^({'|'.join(titles)}):\n((?:    .*\n?|\n)*)", docstring, re.M)
    return found[2] if found else ""


def problems(public: Public) -> list[str]:
    """What the docstring lacks, in sentences; none if it is complete."""
    docstring, lacking = public.docstring, []
    described = ENTRY.findall(section(docstring, "Args", "Attributes"))
    wanted = parameters(public.value)
    if is_dataclass(public.value):  # of the lab: options or a result
        wanted = [one.name for one in fields(public.value)]
    if missing := [name for name in wanted if name not in described]:
        lacking.append(f"does not describe {', '.join(missing)}")
    if strange := [name for name in described if name not in wanted]:
        lacking.append(f"describes {', '.join(strange)}, which it does not have")
    if ">>> " not in section(docstring, "Example"):
        lacking.append("has no example")
    return [f"{public.spelled} {problem}" for problem in lacking]
