"""Direct loss minimisation for any task loss: the user brings the score, the task loss and the two
inferences.

The General Loss Gradient Theorem (Song et al., ICML 2016) asks nothing else: the gradient of the
expected task loss E[Delta(y_w)] is the limit for eps -> 0 of (s/eps) E[dF(y_direct) - dF(y_w)], y_w
= argmax F and y_direct = argmax F + s eps Delta.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from evalgrad._errors import describe, fail
from evalgrad._inputs import WORKING
from evalgrad._options import Direction, checked
from evalgrad._rows import with_gradient
from evalgrad.direct_loss.operators import SIGNS


@checked()
def direct_loss(
    score: Callable[[Any], Tensor],
    task_loss: Callable[[Any], Tensor],
    predict: Callable[[], Any],
    augment: Callable[[float], Any],
    *,
    epsilon: float,
    direction: Direction = "positive",
) -> Tensor:
    """The task loss of the model's prediction, with the direct loss gradient.

    The outputs y can be of any type that the four functions share: class indices, labellings,
    trees; usually those of a whole batch.

    Args:
        score: ``score(y)`` is F(y), differentiable in the network's outputs, one number per sample:
            a tensor of any shape.
        task_loss: ``task_loss(y)`` is Delta of the true output and y, a tensor of the shape of the
            scores.
        predict: ``predict()`` returns y_w, the maximiser of F.
        augment: ``augment(weight)`` returns the maximiser of F + weight Delta. It is called once,
            with weight = epsilon or, in the negative direction, -epsilon. An approximate maximiser
            biases the gradient; this is not checked.
        epsilon: on the scale of the scores; smaller is less biased and more noisy.
        direction: ``"positive"`` moves away from a worse output, ``"negative"`` towards a better
            one.

    Returns:
        The task losses of y_w, without reduction: take the mean.

    Example:
        Three classes, where confusing 0 with 2 costs 5 and any other mistake 1.

        >>> cost = torch.tensor([[0.0, 1.0, 5.0], [1.0, 0.0, 1.0], [5.0, 1.0, 0.0]])
        >>> logits, target = torch.tensor([[0.4, 0.5, 0.3]], requires_grad=True), torch.tensor([0])
        >>> loss = direct_loss(
        ...     score=lambda y: logits.gather(1, y[:, None])[:, 0],
        ...     task_loss=lambda y: cost[target, y],
        ...     predict=lambda: logits.argmax(1),
        ...     augment=lambda weight: (logits + weight * cost[target]).argmax(1),
        ...     epsilon=0.1,
        ... ).mean()
        >>> loss.backward()
        >>> loss.item(), logits.grad
        (1.0, tensor([[  0., -10.,  10.]]))
    """
    _check_functions(score=score, task_loss=task_loss, predict=predict, augment=augment)
    sign = SIGNS[direction]
    with torch.no_grad():
        model, direct = predict(), augment(sign * epsilon)
        value = task_loss(model)
    slope = (_scored(score, direct) - _scored(score, model)) * (sign / epsilon)
    if not isinstance(value, Tensor) or value.shape != slope.shape:
        must = f"of shape {tuple(slope.shape)}"
        repair = "Return one task loss per score, without reducing either."
        fail(ValueError, "direct_loss", "task_loss", must, describe(value), repair)
    slope = slope.to(WORKING[slope.dtype])
    return with_gradient(slope, value.to(slope.dtype), torch.ones_like(slope))


def _check_functions(**functions: object) -> None:
    for name, given in functions.items():
        if not callable(given):
            repair = "Wrap it: `lambda y: ...`."
            fail(TypeError, "direct_loss", name, "a function", describe(given), repair)


def _scored(score: Callable[[Any], Tensor], y: object) -> Tensor:
    value: object = score(y)
    if not isinstance(value, Tensor) or value.dtype not in WORKING:
        must = "a function that returns a floating-point tensor"
        repair = "Return F(y), computed from the network's outputs with autograd."
        fail(TypeError, "direct_loss", "score", must, describe(value), repair)
    return value
