"""The base of the loss modules: options are attributes, checked where they are set, once."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from evalgrad._errors import describe, fail
from evalgrad._inputs import weight_tensor
from evalgrad._options import NO_SCRIPT, Check


class OptionsModule(nn.Module):
    """A module whose options are attributes of their names, shown by its repr.

    A subclass writes the options in its own `__init__`, for the reader and the editor, and hands
    them over, e.g. by `locals()`. `weight` becomes a buffer, so that it moves with the module.
    """

    _options: tuple[str, ...] = ()  # empty until the constructor has set all of them

    def __init__(self, name: str, checks: Mapping[str, Check], given: dict[str, Any]) -> None:
        super().__init__()
        options = {key: x for key, x in given.items() if key not in ("self", "__class__")}
        for key, value in options.items():
            if key in checks:
                checks[key](name, key, value)
            if key == "weight":
                self.register_buffer(key, None if value is None else weight_tensor(name, value))
            else:
                setattr(self, key, value)
        self._options = tuple(options)

    if TYPE_CHECKING:  # options are attributes of their own types, not tensors

        def __getattr__(self, name: str) -> Any: ...

    def extra_repr(self) -> str:
        shown = (name for name in self._options if name != "weight")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)

    def __prepare_scriptable__(self) -> nn.Module:
        raise RuntimeError(NO_SCRIPT.format(type(self).__name__))


class LossModule(OptionsModule):
    """A loss function with its options kept; a subclass names it.

    A call takes the tensors of the function, by place or by name; the third, where there is one,
    is the mask.
    """

    function: ClassVar[Callable[..., Tensor]]  # the public function, decorated by `checked`

    def __init__(self, given: dict[str, Any]) -> None:
        function: Any = type(self).function
        super().__init__(function.__name__, function.checks, given)
        self._check_together(given)

    def __setattr__(self, key: str, value: Any) -> None:
        """An option that is set later is checked as in the constructor, since a call does not."""
        if key in self._options:
            value = self._checked(key, value)
        super().__setattr__(key, value)

    def forward(self, *tensors: Tensor, **named: Tensor | None) -> Tensor:
        """The function itself, without another check of the options."""
        options: dict[str, Any] = named
        if named:
            self._refuse_options(named)
        if len(tensors) == 3:
            self._check_mask(named)
            *tensors, options["mask"] = tensors  # type: ignore[assignment]
        for name in self._options:
            options[name] = getattr(self, name)
        return type(self).function.__wrapped__(*tensors, **options)  # type: ignore[attr-defined]

    def _checked(self, key: str, value: Any) -> Any:
        """The value as the module keeps it."""
        function: Any = type(self).function
        if key in function.checks:
            function.checks[key](function.__name__, key, value)
        options = {name: getattr(self, name) for name in self._options}
        self._check_together({**options, key: value})
        if key == "weight" and value is not None:
            return weight_tensor(function.__name__, value)
        return value

    def _check_together(self, options: Mapping[str, Any]) -> None:
        """For options that exclude each other; a subclass that has such says which."""

    def _refuse_options(self, named: Mapping[str, object]) -> None:
        name = type(self).__name__
        for option in self._options:
            if option in named:
                got, repair = f"{describe(named[option])} in a call", f"Write {name}({option}=...)."
                fail(TypeError, name, option, "set in the constructor", got, repair)

    def _check_mask(self, named: Mapping[str, object]) -> None:
        arguments = type(self).function.arguments  # type: ignore[attr-defined]
        if "mask" in named:
            got, repair = "one by place and one by name", "Pass one of them."
            fail(TypeError, type(self).__name__, "mask", "one mask", got, repair)
        if "mask" not in arguments:
            must, repair = " and ".join(arguments[:2]), "Set options in the constructor."
            fail(TypeError, type(self).__name__, "inputs", must, "3 of them", repair)
