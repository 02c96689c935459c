"""Loss functions by their names in Keras; each gives the mean over a batch.

A classifier's outputs are those before its last activation: Keras computes the cross-entropy from them too, for softmax
and, with more than one class, for sigmoid.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from study.core.errors import StudyError

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "categorical_crossentropy": functional.cross_entropy,
    "binary_crossentropy": functional.binary_cross_entropy_with_logits,
    "mse": functional.mse_loss,
    "mae": functional.l1_loss,
}
OF_LOGITS = ("categorical_crossentropy", "binary_crossentropy")  # which take outputs before the last activation


def loss(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss of (outputs, right outputs).

    Raises:
        StudyError: there is none of this name.
    """
    if name not in LOSSES:
        raise StudyError(f"loss: {name}: with framework: pytorch use {', '.join(LOSSES)}")
    return LOSSES[name]
