"""Every public name documents its arguments and has an example; doctest runs the examples."""

import inspect

import pytest

import evalgrad
from docs.site import arguments, public
from evalgrad.s_measures.module import DEFAULTS

NAMES = list(public.names())
BY_NAME = {one.name: one for one in NAMES}


@pytest.mark.parametrize("one", NAMES, ids=lambda one: one.spelled)
def test_a_public_name_documents_its_arguments_and_has_an_example(one):
    assert public.problems(one) == []


@pytest.mark.parametrize("one", NAMES, ids=lambda one: one.spelled)
def test_the_description_of_a_shared_argument_is_a_copy(one):
    if one.package != "evalgrad_lab":
        _, _, lines, expected = arguments.copied(one, BY_NAME)
        assert lines == expected, "run `make docs`"


def test_the_options_of_a_measure_name_their_defaults():
    """Its signature has `**options`, which shows none."""
    described = arguments.entries(arguments.docstring_lines(evalgrad.FBeta))
    for name, default in DEFAULTS.items():
        if default is not None:
            text = isinstance(default, str)
            shown = f'"{default}" (default)' if text else f", {default:g} by default"
            assert shown in " ".join(" ".join(described[name]).split()), name


def test_every_name_that_evalgrad_has_is_listed():
    found = {name for name, value in vars(evalgrad).items() if _public(name, value)}
    assert found == {
        one.name for one in NAMES if one.spelled.count(".") == 1 and one.package != "evalgrad_lab"
    }


def _public(name, value):
    return not name.startswith("_") and not inspect.ismodule(value)


class _Undocumented:
    """Does something.

    Args:
        width: of it.
    """

    def __init__(self, height):
        pass


def test_an_undocumented_name_is_noticed():
    found = public.problems(public.Public("evalgrad", "thing", _Undocumented))
    assert found == [
        "evalgrad.thing does not describe height",
        "evalgrad.thing describes width, which it does not have",
        "evalgrad.thing has no example",
    ]


def test_a_copy_that_differs_is_noticed():
    lines = ['    """What.', "", "    Args:", "        k: old.", '    """']
    new = arguments.with_arguments(lines, ["k"], {"k": ["        k: new,", "            longer."]})
    assert new[3:5] == ["        k: new,", "            longer."]
    assert len(new) == 6
