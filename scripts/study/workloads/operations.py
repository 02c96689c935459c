"""Operations of training on one sample, and parameters, counted from the shapes of a model's layers.

The rule for operations (FLOP): a dense layer or a convolution has two, a multiplication and an addition, per weight and
position in its forward pass. Its backward pass has twice as many: the gradients of its weights and those of its input.
The first layer needs no gradient of its input. Everything else is not counted: biases, activations, pooling, dropout,
the loss, regularisation and the optimizer's update, below 1 % at full width together (the update is per step).

Parameters are those with a gradient: the weights, the biases, and the shifts and scales of batch normalisation.

These are the operations that the model needs, whatever the hardware executes. A workload's module ``operations`` lists
its layers. No training imports it: a corrected count does not change the version of the training code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from study.core.errors import StudyError
from study.core.registry import submodule

BIAS, SHIFT, SHIFT_AND_SCALE = 1, 1, 2  # trained values of an output beside its weights
FLOAT32 = "float32"
Peak = float | Mapping[str, float] | None  # of float32, or by precision; see config/schemas/machines.schema.yaml


@dataclass(frozen=True)
class Layer:
    """A dense layer or a convolution.

    positions: at which its weights are used, 1 of a dense layer. inputs: weights of one output. outputs: units or
    filters. others: trained values of an output beside its weights. is_normalised: by batch normalisation, which has a
    moving mean and a moving variance of each output.
    """

    positions: int
    inputs: int
    outputs: int
    others: int = BIAS
    is_normalised: bool = False

    @property
    def multiply_adds(self) -> int:
        """Multiplications with addition in the forward pass on one sample."""
        return self.positions * self.inputs * self.outputs

    @property
    def parameters(self) -> int:
        """Number of parameters with a gradient."""
        return (self.inputs + self.others) * self.outputs

    @property
    def statistics(self) -> int:
        """Number of values beside the parameters that have no gradient: moving means and variances."""
        return 2 * self.outputs if self.is_normalised else 0


def list_layers(benchmark: str, model: dict[str, Any], features: int) -> list[Layer] | None:
    """The layers with weights of a benchmark; None if its package has no module ``operations``.

    model: ``model`` in its YAML. features: elements of a sample, as in the run record's ``workload``.
    """
    module = submodule("study.workloads", benchmark, "operations")
    return None if module is None else module.layers(model, features)


def explain_missing_layers(benchmark: str) -> str:
    """The reason why nothing can be counted for a benchmark without a module ``operations``."""
    return f"the layers of {benchmark} are not in scripts/study/workloads/{benchmark}/operations.py"


def count_parameters(benchmark: str, model: dict[str, Any], features: int) -> int:
    """Number of a model's parameters with a gradient; the arguments are those of `list_layers`.

    Raises:
        StudyError: the benchmark's layers are not known.
    """
    stack = list_layers(benchmark, model, features)
    if stack is None:
        raise StudyError(f"{explain_missing_layers(benchmark)}; add them")
    return sum(layer.parameters for layer in stack)


def count_training_flop(benchmark: str, model: dict[str, Any], features: int) -> int | None:
    """Operations (FLOP) of the forward and the backward pass on one sample; None if the layers are not known."""
    stack = list_layers(benchmark, model, features)
    return None if stack is None else 6 * sum(layer.multiply_adds for layer in stack) - 2 * stack[0].multiply_adds


def choose_peak(peak: Peak, precision: str) -> float | None:
    """The peak (FLOP/s) of a rank in a precision; None if the machine's ``peak`` is not of this precision."""
    return peak.get(precision) if isinstance(peak, Mapping) else peak if precision == FLOAT32 else None


def dense(*widths: int) -> list[Layer]:
    """Dense layers from the width of their input to that of their output."""
    return [Layer(1, inputs, outputs) for inputs, outputs in pairwise(widths)]


def convolution(side: int, width: int, *channels: int) -> list[Layer]:
    """Convolutions of width x width that keep ``side`` pixels, from the first channels to the last."""
    return [Layer(side**2, width**2 * inputs, outputs) for inputs, outputs in pairwise(channels)]


def add_batch_norm(others: int, layers: list[Layer]) -> list[Layer]:
    """The same layers with batch normalisation. others: trained values of an output beside its weights."""
    return [replace(layer, others=others, is_normalised=True) for layer in layers]


def halve_side(side: int) -> int:
    """Pixels of a map's side after a stride of 2 with padding."""
    return -(-side // 2)
