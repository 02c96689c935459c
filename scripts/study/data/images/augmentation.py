"""Random changes of whole images in training: a box is cut out and scaled to the network's input, colours change.

Each change follows from the run's seed, the epoch and the image's position alone, whichever rank makes it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from study.core.registry import Registry

NONE, LIGHT = "none", "light"  # the centre; a random place of an image that was scaled to a fixed size


@dataclass(frozen=True)
class Boxes:
    """Boxes of an image as they are drawn.

    Args:
        area: the smallest and the largest share of the image's area.
        aspect: the smallest and the largest width / height.
        least_covered: share of the image below which a box is drawn again.
        methods: of scaling a box to the network's input, one at random.
    """

    area: tuple[float, float]
    aspect: tuple[float, float]
    least_covered: float
    methods: tuple[str, ...]


@dataclass(frozen=True)
class Augmentation:
    """How whole images change. boxes: that are cut out. colours: whether these change too."""

    boxes: Boxes
    colours: bool


# By the value of the grid key; they need the whole image.
OF_WHOLE_IMAGES: Registry[Augmentation] = Registry("augmentation of whole images")
OF_WHOLE_IMAGES.add(
    "scale_and_aspect",  # PRACE guide to deep learning, 2019, section 6.2.6
    Augmentation(Boxes((0.08, 1.0), (0.75, 1 / 0.75), 0.0, ("bicubic",)), colours=False),
)
OF_WHOLE_IMAGES.add(
    "slim",  # TF-Slim's preprocessing for Inception with fast_mode off; without a box of its object the image is one
    Augmentation(Boxes((0.05, 1.0), (0.75, 1.33), 0.1, ("bilinear", "nearest", "bicubic", "area")), colours=True),
)
# TF-Slim's ranges: of a summand, of factors, of a turn of the hue; and its four orders.
BRIGHTNESS, SATURATION, HUE, CONTRAST = (-32 / 255, 32 / 255), (0.5, 1.5), (-0.2, 0.2), (0.5, 1.5)
ORDERS = (
    ("brightness", "saturation", "hue", "contrast"),
    ("saturation", "brightness", "contrast", "hue"),
    ("contrast", "hue", "brightness", "saturation"),
    ("hue", "saturation", "contrast", "brightness"),
)
MIRRORED, WHOLE = 1, 2  # the last column of changes; 0 of a light change that does not mirror
HALF = np.uint64(32)  # bits of a word


def draw_light_changes(words: NDArray[np.uint64], room: int, flip: bool) -> NDArray[np.int64]:
    """Light changes, (..., 3): first row and first column of the square that is cut out, and `MIRRORED` or not.

    Args:
        words: two for each image, (..., 2), of `study.data.order.draw_change_words`.
        room: rows, and columns, that an image has more than the square.
        flip: whether half of the images are mirrored, left to right.
    """
    places = np.uint64(room + 1)
    corner = words[..., 0] >> HALF, words[..., 0] & np.uint64(0xFFFFFFFF)
    rows, columns = ((each * places) >> HALF for each in corner)
    mirrored = words[..., 1] >> np.uint64(63) if flip else np.zeros_like(rows)
    return np.stack([rows, columns, mirrored], axis=-1).astype(np.int64)


def make_seeds(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Seeds of changes of whole images, (..., 3): two words for the framework, and `WHOLE`."""
    return np.concatenate([words.view(np.int64), np.full((*words.shape[:-1], 1), WHOLE)], axis=-1)
