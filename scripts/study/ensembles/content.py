"""The content of blocks: arrays of samples, and their form as the bytes that are sent."""

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
    """Type and shape of each array of a sample."""

    types: tuple[np.dtype[Any], ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def from_arrays(cls, arrays: Sequence[tuple[np.dtype[Any], tuple[int, ...]]]) -> Form:
        """From (type, shape of one sample) of each array, as `study.backends.base.Backend.describe_blocks` gives it."""
        return cls(tuple(kind for kind, _ in arrays), tuple(shape for _, shape in arrays))

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample, all arrays together."""
        return sum(self._sizes)

    @property
    def _sizes(self) -> list[int]:
        """Bytes of each array of a sample."""
        return [
            kind.itemsize * int(np.prod(shape, dtype=np.int64))
            for kind, shape in zip(self.types, self.shapes, strict=True)
        ]

    def pack(self, content: Content) -> Bytes:
        """Concatenate the arrays of a block as bytes."""
        return np.concatenate([np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in content])

    def unpack(self, sent: Bytes, samples: int) -> Content:
        """Rebuild the arrays of a block with ``samples`` samples from its bytes; they share the memory of ``sent``."""
        arrays, begin = [], 0
        for kind, shape, size in zip(self.types, self.shapes, self._sizes, strict=True):
            array = sent[begin : begin + size * samples]
            # A type's own alignment is needed: the second array begins where the first one ends.
            array = array if array.ctypes.data % kind.itemsize == 0 else array.copy()
            arrays.append(array.view(kind).reshape((samples, *shape)))
            begin += size * samples
        return tuple(arrays)

    def split_blocks(self, sent: Bytes, counts: Sequence[int]) -> list[Content]:
        """Split the bytes of consecutive blocks into these blocks. counts: samples of each."""
        blocks, begin = [], 0
        for count in counts:
            size = count * self.sample_bytes
            blocks.append(self.unpack(sent[begin : begin + size], count))
            begin += size
        return blocks

    def require_sendable(self, samples: int) -> None:
        """Raise `StudyError` if a block of ``samples`` samples is too large to be sent at once."""
        if samples * self.sample_bytes > MOST_BYTES:
            raise StudyError(
                f"share_block_samples: {samples} samples of {self.sample_bytes} bytes are more than the 2 GiB that "
                "Gloo sends at once; give fewer samples per block"
            )

    def compute_offsets(self, samples: int) -> tuple[list[int], int]:
        """Compute the aligned offset of each array within a block's memory, and the block's size, in bytes."""
        offsets, end = [], 0
        for size in self._sizes:
            offsets.append(end)
            end += -(-size * samples // ALIGNMENT) * ALIGNMENT
        return offsets, end


def count_bytes(content: Content) -> int:
    """Sum the bytes of a block's arrays."""
    return sum(array.nbytes for array in content)
