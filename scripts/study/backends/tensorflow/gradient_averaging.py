"""How the ranks' gradients are averaged in TensorFlow: by whatever carries their communication."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from study.backends.tensorflow import precision
from study.communication.collectives import Collectives
from study.communication.single_rank import SingleRank
from study.core.errors import StudyError

Observer = Callable[[list[Any]], None]  # of tensors: a rank's own gradients


class Averaging(Protocol):
    """The average of gradients over the ranks, besides their `study.communication.collectives.Collectives`."""

    sends_sparse: bool  # whether it was seen to send sparse gradients (of embeddings) as they are
    strategy: Any  # TensorFlow's strategy, in whose scope the model is made; None if the model is a local one

    def distribute_optimizer(self, optimizer: Any, compression: str = "none", backward_passes: int = 1) -> Any:
        """Wrap ``optimizer`` so that each gradient is averaged over the ranks before it is applied.

        compression: ``fp16`` to send 16 bits per value. backward_passes: steps whose gradients are averaged first; the
        others change no weights.
        """

    def has_averaged(self, optimizer: Any, variables: list[Any]) -> bool | None:
        """True if the existing gradients of ``variables`` were averaged; None if it is not known.

        optimizer: of `distribute_optimizer`.
        """

    def observe_gradients(self, optimizer: Any, observe: Observer) -> None:
        """Have each step of an optimizer of `distribute_optimizer` also call ``observe(gradients)``.

        gradients: tensors, one for each variable, before averaging. It is called when a step is traced.
        """

    def broadcast_variables(self, variables: list[Any]) -> None:
        """Set ``variables`` on every rank to the values of the first one."""


def get_averaging(ranks: Collectives) -> Averaging:
    """The averaging of gradients over ``ranks``."""
    if isinstance(ranks, SingleRank):
        return LocalAveraging()
    return cast(Averaging, ranks)


class LocalAveraging:
    """The `Averaging` of a single rank: there is nothing to average."""

    strategy, sends_sparse = None, False

    def distribute_optimizer(self, optimizer: Any, compression: str = "none", backward_passes: int = 1) -> Any:
        """``optimizer``, unchanged."""
        return optimizer

    def has_averaged(self, optimizer: Any, variables: list[Any]) -> bool | None:
        """None: there is nothing to average."""
        return None

    def observe_gradients(self, optimizer: Any, observe: Observer) -> None:
        """Have each step of ``optimizer`` also call ``observe(gradients)``."""
        optimizer = precision.unwrap_loss_scale(optimizer)
        compute = optimizer.compute_gradients

        def compute_and_observe(*arguments: Any, **named: Any) -> Any:
            pairs = compute(*arguments, **named)
            observe([gradient for gradient, _ in pairs])
            return pairs

        optimizer.compute_gradients = compute_and_observe

    def broadcast_variables(self, variables: list[Any]) -> None:
        """Nothing: the rank keeps its own."""


class StrategyAveraging(LocalAveraging):
    """The `Averaging` of one of TensorFlow's strategies, which averages inside the optimizer's step.

    It refuses what a strategy lacks of `study.communication.collectives.Collectives`.
    """

    name: str  # as in the grid key

    def observe_gradients(self, optimizer: Any, observe: Observer) -> None:
        """Refused: the gradients are inside the strategy."""
        raise StudyError(f"strategy: {self.name} does not show its gradients")

    def build_allreduce(self, size: int) -> Callable[[], object]:
        """Refused: the sweep times Horovod's allreduces."""
        raise self._make_refusal("allreduce sweep")

    def _make_refusal(self, what: str) -> StudyError:
        """The error for what the strategy lacks."""
        return StudyError(f"strategy: {self.name} has no {what}")
