"""The content of blocks: arrays of samples, and the same as bytes, in which they are sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.core.errors import StudyError

Content = tuple[NDArray[Any], ...]  # x and y of a block's samples
Bytes = NDArray[np.uint8]
MOST_BYTES = 2**31 - 1  # of what is sent at once: Gloo counts elements in 32 bits
ALIGNMENT = 64  # bytes, of each array within a block


@dataclass(frozen=True)
class Form:
    """What each sample of a block consists of: type and shape of each of its arrays."""

    types: tuple[np.dtype[Any], ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, arrays: Sequence[tuple[np.dtype[Any], tuple[int, ...]]]) -> Form:
        """arrays: of each, its type and the shape of one sample; as `study.backends.base.Backend.block_form`."""
        return cls(tuple(kind for kind, _ in arrays), tuple(shape for _, shape in arrays))

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample."""
        return sum(self._sizes)

    @property
    def _sizes(self) -> list[int]:
        return [
            kind.itemsize * int(np.prod(shape, dtype=np.int64))
            for kind, shape in zip(self.types, self.shapes, strict=True)
        ]

    def packed(self, content: Content) -> Bytes:
        """The arrays of a block, one after the other, as bytes."""
        return np.concatenate([np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in content])

    def unpacked(self, sent: Bytes, samples: int) -> Content:
        """The arrays of a block with so many samples; they share the memory of ``sent``."""
        found, first = [], 0
        for kind, shape, size in zip(self.types, self.shapes, self._sizes, strict=True):
            array = sent[first : first + size * samples]
            # A type's own alignment is needed: the second array begins where the first one ends.
            array = array if array.ctypes.data % kind.itemsize == 0 else array.copy()
            found.append(array.view(kind).reshape((samples, *shape)))
            first += size * samples
        return tuple(found)

    def split(self, sent: Bytes, samples: Sequence[int]) -> list[Content]:
        """The blocks of a round, which were sent one after the other. samples: of each."""
        found, first = [], 0
        for number in samples:
            size = number * self.sample_bytes
            found.append(self.unpacked(sent[first : first + size], number))
            first += size
        return found

    def check(self, samples: int) -> None:
        """Raise `StudyError` if so many samples are too many to be sent at once."""
        if samples * self.sample_bytes > MOST_BYTES:
            raise StudyError(
                f"share_block_samples: {samples} samples of {self.sample_bytes} bytes are more than the 2 GiB that "
                "Gloo sends at once; give fewer samples per block"
            )

    def places(self, samples: int) -> tuple[list[int], int]:
        """Where each array of a block begins in memory of its own, aligned, and the bytes that it takes."""
        places, end = [], 0
        for size in self._sizes:
            places.append(end)
            end += -(-size * samples // ALIGNMENT) * ALIGNMENT
        return places, end


def bytes_of(content: Content) -> int:
    """Bytes of a block's arrays."""
    return sum(array.nbytes for array in content)
