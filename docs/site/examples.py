"""Griffe knows a section of examples as `Examples:`; the docstrings here have one, `Example:`."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the section before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.M
            )
