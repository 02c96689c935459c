"""torch.compile, with a message where it cannot compile here."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from study.core.errors import StudyError


def compiled(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """The compiled function of a model; it is compiled at its first call, for each kind of batch.

    The function raises `StudyError` where there is no compiler, or it fails.
    """
    function = torch.compile(model)

    def call(inputs: Tensor) -> Tensor:
        try:
            return cast(Tensor, function(inputs))
        except torch._dynamo.exc.TorchDynamoException as error:  # Inductor's are among them
            first = str(error).strip().splitlines()[0]
            raise StudyError(f"torch_compile: PyTorch cannot compile the model here: {first}") from error

    return call
