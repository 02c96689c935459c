"""TensorFlow's own way to share preprocessing, to compare with: the tf.data service with its cross-trainer cache.

A member that is too slow skips batches. So the samples of a member, and its weights, depend on the speed of all
members: runs cannot be compared bit by bit, with others or with themselves.
"""

from __future__ import annotations

from study.backends.tensorflow.data_service import DataService
from study.core.errors import StudyError
from study.ensembles.content import Content, count_bytes
from study.ensembles.order import Block
from study.ensembles.sharing.base import WAYS, Place, SharedBlocks, Way


@WAYS.register("tf_data_service")
class TfDataService(Way):
    """Blocks come from the service's worker, in the process of rank 0. A member that lags skips samples."""

    readers, reader = 1, None
    knows_threads = False

    def __init__(self, place: Place) -> None:
        if place.communicator.local_size != place.communicator.size:
            raise StudyError("input_sharing: tf_data_service needs all ranks on one host; use another input_sharing")
        super().__init__(place)
        form = list(zip(place.form.types, place.form.shapes, strict=True))
        self._service = DataService(place.communicator, place.samples, place.order, form, self._count)

    def _count(self, samples: int) -> None:
        """Count samples that the worker has preprocessed."""
        self.samples_preprocessed += samples

    def share(self, blocks: list[Block], own: Content | None) -> SharedBlocks:
        """Return the next block that the worker has for this member."""
        content = self._service.next_block()
        self.received_bytes += count_bytes(content) if self.place.rank else 0
        return [(block, content) for block in blocks]
