"""The optimizers of Keras, with its constants: PyTorch's own differ in what a changed rate does, and in epsilon.

- SGD: the velocity contains the learning rate of its step, so a new rate does not change it.
- Adam: epsilon is added to the root of the second moment before its correction.
- RMSprop: epsilon is within the root, and the decay is 0.9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

BETAS, DECAY, EPSILON = (0.9, 0.999), 0.9, 1e-7
Tensors = list[Tensor]


class Optimizer:
    """An optimizer of ``weights``, with slots of their shapes.

    rate, momentum: of the next steps. steps: made so far. slots: by name, one tensor per weight.
    """

    def __init__(self, kind: str, weights: Sequence[Tensor], rate: float, momentum: float = 0.0) -> None:
        """kind: ``sgd``, ``adam`` or ``rmsprop``."""
        self._weights, self._kind = list(weights), kind
        self.rate, self.momentum, self.steps = rate, momentum, 0
        # Their layout in memory may be another one than the weights': gradients of convolutions have it.
        self.slots = {name: [torch.zeros_like(each) for each in self._weights] for name in _SLOTS[kind]}
        if kind == "sgd" and not momentum:
            self.slots = {}

    @torch.no_grad()
    def apply(self) -> None:
        """Change the weights by their gradients, ``grad``; a weight without one stays as it is."""
        chosen = [number for number, each in enumerate(self._weights) if each.grad is not None]
        if chosen:
            weights = [self._weights[number] for number in chosen]
            gradients = [each.grad for each in weights if each.grad is not None]
            slots = [[each[number] for number in chosen] for each in self.slots.values()]
            _STEPS[self._kind](self, weights, gradients, *slots)

    def _apply_sgd(self, weights: Tensors, gradients: Tensors, velocities: Tensors | None = None) -> None:
        """Change the weights by SGD, with momentum if there are velocities."""
        if velocities is None:
            torch._foreach_add_(weights, gradients, alpha=-self.rate)
            return
        torch._foreach_mul_(velocities, self.momentum)
        torch._foreach_add_(velocities, gradients, alpha=-self.rate)
        torch._foreach_add_(weights, velocities)

    def _apply_adam(self, weights: Tensors, gradients: Tensors, first: Tensors, second: Tensors) -> None:
        """Change the weights by Adam. first, second: moments of the gradients."""
        step, (one, two) = self.steps + 1, BETAS
        torch._foreach_lerp_(first, gradients, 1 - one)
        torch._foreach_mul_(second, two)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - two)
        divisors = torch._foreach_sqrt(second)
        torch._foreach_add_(divisors, EPSILON)
        torch._foreach_addcdiv_(weights, first, divisors, -self.rate * (1 - two**step) ** 0.5 / (1 - one**step))

    def _apply_rmsprop(self, weights: Tensors, gradients: Tensors, squares: Tensors) -> None:
        """Change the weights by RMSprop. squares: running means of the squared gradients."""
        torch._foreach_mul_(squares, DECAY)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - DECAY)
        divisors = torch._foreach_add(squares, EPSILON)
        torch._foreach_sqrt_(divisors)
        torch._foreach_addcdiv_(weights, gradients, divisors, -self.rate)


_SLOTS = {"sgd": ("velocity",), "adam": ("first_moment", "second_moment"), "rmsprop": ("mean_square",)}
_STEPS: dict[str, Callable[..., None]] = {
    "sgd": Optimizer._apply_sgd,
    "adam": Optimizer._apply_adam,
    "rmsprop": Optimizer._apply_rmsprop,
}
