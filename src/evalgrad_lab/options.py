"""The options of a command as a dataclass: one declaration for Python, the command line and config
files. It does not import torch, so that `--help` is quick.
"""

import argparse
import dataclasses
import inspect
import json
import types
from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from typing_extensions import Self

from evalgrad_lab.errors import UserError
from evalgrad_lab.store import read_json


def option(
    default: Any = MISSING,
    *,
    help: str,
    positional: bool = False,
    least: float | None = None,
    below: float | None = None,
    elsewhere: bool = False,
) -> Any:
    """A field of `Options`. `least` and `below` bound a number; `elsewhere` marks what does not
    change a result, such as the number of workers, so that a run may go on with another value.
    """
    metadata: dict[str, Any] = {"help": help, "positional": positional, "elsewhere": elsewhere}
    metadata |= {"least": least, "below": below}
    if isinstance(default, (dict, list)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a command; numbers and choices are checked when it is created."""

    def __init_subclass__(cls) -> None:
        """Describe every option in the docstring by its `help`, which is written once."""
        own = {name: one for name, one in vars(cls).items() if isinstance(one, Field)}
        known = own | getattr(cls, "__dataclass_fields__", {}) | own  # its own come first
        listed = "".join(f"    {n}: {one.metadata['help']}\n" for n, one in known.items())
        summary, example, code = inspect.cleandoc(cls.__doc__ or "").partition("Example:")
        cls.__doc__ = f"{summary.rstrip()}\n\nArgs:\n{listed}\n{example}{code}"

    def __post_init__(self) -> None:
        kinds = get_type_hints(type(self))
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, list) and "tuple" in str(kinds[one.name]):  # as JSON has it
                object.__setattr__(self, one.name, value := tuple(value))
            _check(flag(one), value, kinds[one.name], one.metadata)

    def plain(self, *, elsewhere: bool = True) -> dict[str, Any]:
        """As JSON takes it; without what does not change a result, if that is not asked for."""
        kept = [one for one in fields(self) if elsewhere or not one.metadata["elsewhere"]]
        values = {one.name: getattr(self, one.name) for one in kept}
        lists = {n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}
        return {name: str(v) if isinstance(v, Path) else v for name, v in lists.items()}

    def shared(self, kind: type) -> dict[str, Any]:
        """Those that another dataclass has by the same names."""
        own = {one.name for one in fields(self)}
        return {one.name: getattr(self, one.name) for one in fields(kind) if one.name in own}

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """What `plain` gave, as options again."""
        kinds = get_type_hints(cls)
        known = {one.name for one in fields(cls)}
        return cls(**{n: _as_path(v, kinds[n]) for n, v in values.items() if n in known})

    def arguments(self) -> list[str]:
        """The equivalent command line, without options that have their default."""
        words: list[str] = []
        for one in fields(self):
            value = getattr(self, one.name)
            if value == default_of(one):
                continue
            words += [flag(one)] * (not one.metadata["positional"])
            if not isinstance(value, bool):
                value = ",".join(map(str, value)) if isinstance(value, tuple) else value
                values = value if isinstance(value, list) else [value]
                words += [json.dumps(v) if isinstance(v, dict) else str(v) for v in values]
        return words


Kind = TypeVar("Kind", bound=Options)


def default_of(one: "dataclasses.Field[Any]") -> Any:
    """What a field is if nothing is said; MISSING where something must be."""
    return one.default_factory() if one.default_factory is not MISSING else one.default


def _as_path(value: Any, kind: Any) -> Any:
    return Path(value) if isinstance(value, str) and Path in (kind, *get_args(kind)) else value


def flag(one: "dataclasses.Field[Any]") -> str:
    """How the command line spells a field."""
    name = one.name.replace("_", "-")
    return name.upper() if one.metadata["positional"] else f"--{name}"


def _check(name: str, value: Any, kind: Any, limits: Any) -> None:
    if not fits(value, kind):
        raise UserError(f"{name} must be {in_words(kind)}; got {value!r}.")
    least, below = limits["least"], limits["below"]
    if value is None or (least is None and below is None):
        return
    # written so that NaN, which is neither, is refused too
    if not ((least is None or value >= least) and (below is None or value < below)):
        upper = "" if below is None else f" and below {below:g}"
        raise UserError(f"{name} must be at least {least:g}{upper}; got {value}.")


def fits(value: Any, kind: Any) -> bool:
    """Whether plain data match a type hint.

    >>> fits([1, 0.5], list[float]), fits("3", int), fits(True, int)
    (True, False, False)
    """
    outer, inner = get_origin(kind), get_args(kind)
    if outer in (Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if outer is Literal:
        return value in inner
    if outer in (list, tuple):
        return isinstance(value, outer) and all(fits(one, inner[0]) for one in value)
    if outer is dict:
        return isinstance(value, dict) and all(isinstance(key, inner[0]) for key in value)
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a text",
    Path: "a path",
    list: "a list of texts",
    tuple: "numbers such as 1,0.5",
    dict: "a JSON object",
}


def in_words(kind: Any) -> str:
    """What a type hint asks for."""
    outer, inner = get_origin(kind), get_args(kind)
    if outer is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if outer in (Union, types.UnionType):
        return " or ".join(in_words(one) for one in inner if one is not type(None))
    if outer is list and inner[0] is float:
        return "a list of numbers"
    return WORDS.get(outer or kind, getattr(kind, "__name__", str(kind)))


def parse(kind: type[Kind], parser: argparse.ArgumentParser, arguments: Sequence[str]) -> Kind:
    """The options of a command line, which come before those of `--config FILE`, a JSON object."""
    kinds = get_type_hints(kind)
    for one in _own_first(kind):
        _add(parser, one, kinds[one.name])
    parser.add_argument("--config", type=Path, help="JSON file of options by their names")
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--config", type=Path)
    path = first.parse_known_args([a for a in arguments if a not in ("-h", "--help")])[0].config
    if path is not None:
        known = {one.name for one in fields(kind)}
        given = read_config(path, known)
        for action in parser._actions:
            if action.dest in given:
                action.required = False
        parser.set_defaults(**given)
    found = vars(parser.parse_args(list(arguments)))
    return kind(**{one.name: found[one.name] for one in fields(kind)})


def _own_first(kind: type[Options]) -> list["dataclasses.Field[Any]"]:
    """The fields of a command before those that it shares: `--help` begins with what is its own."""
    names = [name for owner in kind.__mro__ for name in inspect.get_annotations(owner)]
    return sorted(fields(kind), key=lambda one: names.index(one.name))


def read_config(path: Path, known: set[str]) -> dict[str, Any]:
    """The options of a config file; `_` and `-` in their names are the same."""
    options = f"The options of --config are {', '.join(sorted(known))}."
    content = read_json(path, options)
    given = {name.replace("-", "_"): value for name, value in content.items()}
    if unknown := sorted(set(given) - known):
        raise UserError(f"{path} has {', '.join(unknown)}. {options}")
    return given


def _add(parser: argparse.ArgumentParser, one: "dataclasses.Field[Any]", kind: Any) -> None:
    parts = [part for part in get_args(kind) or (kind,) if part is not type(None)]
    inner = parts[0] if get_origin(kind) in (Union, types.UnionType) else kind
    default = default_of(one)
    more: dict[str, Any] = {"help": one.metadata["help"]}
    if inner is bool:
        parser.add_argument(flag(one), dest=one.name, action="store_true", help=more["help"])
        return
    if get_origin(inner) is Literal:
        more["choices"] = get_args(inner)
    elif get_origin(inner) is list:
        more["nargs"] = "*" if one.metadata["positional"] else "+"
    elif get_origin(inner) is dict:
        more["type"], more["metavar"] = json_object, "JSON"
    elif get_origin(inner) is tuple:
        more["type"] = numbers
    else:
        more["type"] = inner
    if one.metadata["positional"]:
        parser.add_argument(one.name, metavar=flag(one), default=default, **more)
        return
    required = default is MISSING
    parser.add_argument(
        flag(one), dest=one.name, required=required, default=None if required else default, **more
    )


def numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be numbers such as 1,0.5; got {text!r}") from error


def json_object(text: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be JSON; got {text!r} ({error})") from error
    if not isinstance(value, dict):
        example = """'{"epsilon": 0.1}'"""
        raise argparse.ArgumentTypeError(f"must be a JSON object such as {example}; got {text!r}")
    return value
