"""The base of the loss modules: options are attributes, checked once, in the constructor."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from evalgrad._inputs import weight_tensor


class LossModule(nn.Module):
    """A loss function with its options kept.

    A subclass names its `function` and writes the options in its own `__init__`, for the reader
    and the editor; ``super().__init__(locals())`` hands them over. Each becomes an attribute of
    its name, `weight` a buffer, so that it moves with the module. A call takes the tensors of the
    function, by place or by name; the third, where there is one, is the mask.
    """

    function: ClassVar[Callable[..., Tensor]]  # the public function, decorated by `checked`

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        function: Any = type(self).function
        options = {name: x for name, x in given.items() if name not in ("self", "__class__")}
        for name, value in options.items():
            if name in function.checks:
                function.checks[name](function.__name__, name, value)
            if name == "weight":
                weight = None if value is None else weight_tensor(function.__name__, value)
                self.register_buffer(name, weight)
            else:
                setattr(self, name, value)
        self._options = tuple(options)

    if TYPE_CHECKING:  # options are attributes of their own types, not tensors

        def __getattr__(self, name: str) -> Any: ...

    def forward(self, *tensors: Tensor, **named: Tensor | None) -> Tensor:
        """The function itself, without another check of the options."""
        options: dict[str, Any] = named
        if len(tensors) == 3:
            *tensors, options["mask"] = tensors  # type: ignore[assignment]
        for name in self._options:
            options[name] = getattr(self, name)
        return type(self).function.__wrapped__(*tensors, **options)  # type: ignore[attr-defined]

    def extra_repr(self) -> str:
        shown = (name for name in self._options if name != "weight")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)

    def __prepare_scriptable__(self) -> nn.Module:
        raise RuntimeError(
            f"{type(self).__name__}: torch.jit.script cannot compile this loss. Use"
            " torch.export.export or torch.compile instead, or script the network alone."
        )
