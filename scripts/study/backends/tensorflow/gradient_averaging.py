"""How the ranks' gradients are averaged in TensorFlow: by whatever carries their communication."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from numpy.typing import NDArray

from study.backends.tensorflow import precision
from study.communication.alone import Alone
from study.communication.collectives import Collectives, Members
from study.core.errors import StudyError

Observer = Callable[[list[Any]], None]  # of tensors: a rank's own gradients


class Averaging(Protocol):
    """What training needs of the ranks besides `study.communication.collectives.Collectives`."""

    sends_sparse: bool  # whether it was seen to send sparse gradients (of embeddings) as they are
    strategy: Any  # TensorFlow's strategy, in whose scope the model is made; None if the model is a local one

    def distributed_optimizer(self, optimizer: Any, compression: str = "none", backward_passes: int = 1) -> Any:
        """``optimizer``, with each gradient averaged over the ranks before it is applied.

        compression: ``fp16`` to send 16 bits per value. backward_passes: steps whose gradients are averaged first; the
        others change no weights.
        """

    def has_averaged(self, optimizer: Any, variables: list[Any]) -> bool | None:
        """Whether the gradients of ``variables``, as far as there are any, were averaged; None if it is not known.

        optimizer: of `distributed_optimizer`.
        """

    def observe_gradients(self, optimizer: Any, observe: Observer) -> None:
        """Have each step of an optimizer of `distributed_optimizer` also do ``observe(gradients)``.

        gradients: tensors, one for each variable, before averaging. It is called when a step is traced.
        """

    def broadcast_variables(self, variables: list[Any]) -> None:
        """Set ``variables`` on every rank to the values of the first one."""


def averaging_of(ranks: Collectives) -> Averaging:
    """The averaging among ``ranks``."""
    if isinstance(ranks, Alone):
        return Local()
    return cast(Averaging, ranks)


class Local:
    """The `Averaging` of a single rank: there is nothing to average."""

    strategy, sends_sparse = None, False

    def distributed_optimizer(self, optimizer: Any, compression: str = "none", backward_passes: int = 1) -> Any:
        """``optimizer`` as it is."""
        return optimizer

    def has_averaged(self, optimizer: Any, variables: list[Any]) -> bool | None:
        """None: there is nothing to average."""
        return None

    def observe_gradients(self, optimizer: Any, observe: Observer) -> None:
        """Have each step of ``optimizer`` also do ``observe(gradients)``."""
        optimizer = precision.without_loss_scale(optimizer)
        compute = optimizer.compute_gradients

        def observed(*arguments: Any, **named: Any) -> Any:
            pairs = compute(*arguments, **named)
            observe([gradient for gradient, _ in pairs])
            return pairs

        optimizer.compute_gradients = observed

    def broadcast_variables(self, variables: list[Any]) -> None:
        """Nothing: the rank keeps its own."""


class OfStrategy(Local):
    """The `Averaging` of one of TensorFlow's strategies, which averages inside the optimizer's step.

    It refuses what a strategy lacks of `study.communication.collectives.Collectives`.
    """

    name: str  # as in the grid key

    def observe_gradients(self, optimizer: Any, observe: Observer) -> None:
        """Refused: the gradients are inside the strategy."""
        raise StudyError(f"strategy: {self.name} does not show its gradients")

    def create_process_sets(self, sets: list[Members]) -> None:
        """Refused: the strategy averages over all workers."""
        raise self._lacks("process sets")

    def broadcast_matrix(self, matrix: NDArray[Any], members: Members | None = None) -> None:
        """Refused."""
        raise self._lacks("broadcast of data")

    def allreduce_of(self, size: int) -> Callable[[], object]:
        """Refused: the sweep times Horovod's allreduces."""
        raise self._lacks("allreduce sweep")

    def _lacks(self, what: str) -> StudyError:
        return StudyError(f"strategy: {self.name} has no {what}")
