from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

def parse(
    content: NDArray[np.uint8],
    separator: bytes,
    places: NDArray[np.int32],
    missing: Sequence[bytes],
    target: NDArray[np.float32],
    codes: NDArray[np.int32],
) -> list[list[str]]: ...
def line_feeds(content: NDArray[np.uint8]) -> bytes: ...
