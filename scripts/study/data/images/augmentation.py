"""Random changes of whole images in training: a box is cut out and scaled to the network's input, colours change.

Each change follows from the run's seed, the epoch and the image's position alone, whichever rank makes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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


def changed(pixels: Any, kind: str, side: int, flip: bool, seed: Any) -> Any:
    """A changed image, float32 (side, side, channels) from -1 to 1.

    Args:
        pixels: the whole image, a uint8 tensor (height, width, channels).
        kind: a name in `OF_WHOLE_IMAGES`.
        side: of the result, in pixels.
        flip: whether half of the images are mirrored, left to right.
        seed: two int64 in a tensor, of this image in this epoch; see `study.data.images.codec.seed_of`.
    """
    import tensorflow as tf

    how, channels = OF_WHOLE_IMAGES[kind], pixels.shape[-1]
    mirror, method, order, *colours = tf.unstack(
        tf.random.stateless_uniform([7], tf.random.experimental.stateless_fold_in(seed, 1))
    )
    box = tf.cast(_cut(pixels, how.boxes, seed), tf.float32) / 255
    found = _one_of(method, [_scaling(box, side, name) for name in how.boxes.methods])
    if flip:
        found = tf.cond(mirror < 0.5, lambda: tf.reverse(found, [1]), lambda: found)
    if how.colours:
        found = _one_of(order, [_recolouring(found, names, colours) for names in ORDERS])
    return tf.ensure_shape(2 * tf.clip_by_value(found, 0, 1) - 1, (side, side, channels))


def _cut(pixels: Any, boxes: Boxes, seed: Any) -> Any:
    """A random box of the image, uint8; the whole image if a hundred boxes do not fit."""
    import tensorflow as tf

    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(pixels),
        tf.zeros([1, 0, 4]),
        seed,
        min_object_covered=boxes.least_covered,
        aspect_ratio_range=boxes.aspect,
        area_range=boxes.area,
        max_attempts=100,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.slice(pixels, begin, size)


def _scaling(box: Any, side: int, method: str) -> Callable[[], Any]:
    import tensorflow as tf

    return lambda: tf.image.resize(box, (side, side), method=method)


def _recolouring(image: Any, order: tuple[str, ...], drawn: list[Any]) -> Callable[[], Any]:
    """A function that changes the colours of an image in this order. drawn: four numbers from 0 to 1."""
    import tensorflow as tf

    changes: dict[str, tuple[Callable[[Any, Any], Any], tuple[float, float]]] = {
        "brightness": (tf.image.adjust_brightness, BRIGHTNESS),
        "saturation": (tf.image.adjust_saturation, SATURATION),
        "hue": (tf.image.adjust_hue, HUE),
        "contrast": (tf.image.adjust_contrast, CONTRAST),
    }
    amounts = {
        name: low + number * (high - low)
        for (name, (_, (low, high))), number in zip(changes.items(), drawn, strict=True)
    }

    def recoloured() -> Any:
        found = image
        for name in order:
            found = changes[name][0](found, amounts[name])
        return found

    return recoloured


def _one_of(number: Any, branches: list[Callable[[], Any]]) -> Any:
    """The result of one branch. number: from 0 to 1, below 1."""
    import tensorflow as tf

    if len(branches) == 1:
        return branches[0]()
    return tf.switch_case(tf.cast(number * len(branches), tf.int32), branches)
