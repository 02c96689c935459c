"""Random changes of whole images as TensorFlow makes them; see `study.data.images.augmentation`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from study.data.images.augmentation import (
    BRIGHTNESS,
    CONTRAST,
    HUE,
    MIRRORED,
    OF_WHOLE_IMAGES,
    ORDERS,
    SATURATION,
    Boxes,
)


def cut_out(pixels: Any, side: int, changes: Any) -> Any:
    """Squares of ``side`` pixels, each mirrored or not.

    pixels: uint8 (images, height, width, channels); squares. changes: of `study.data.images.augmentation.drawn`.
    """
    import tensorflow as tf

    channels = pixels.shape[-1]

    def cut(image: Any, change: Any) -> Any:
        square = tf.slice(image, tf.concat([change[:2], [0]], 0), [side, side, channels])
        return tf.cond(change[2] == MIRRORED, lambda: tf.reverse(square, [1]), lambda: square)

    found = tf.TensorSpec((side, side, channels), tf.uint8)
    return tf.map_fn(lambda pair: cut(*pair), (pixels, changes), fn_output_signature=found)


def changed(pixels: Any, kind: str, side: int, flip: bool, seed: Any) -> Any:
    """A changed image, float32 (side, side, channels) from -1 to 1.

    Args:
        pixels: the whole image, a uint8 tensor (height, width, channels).
        kind: a name in `OF_WHOLE_IMAGES`.
        side: of the result, in pixels.
        flip: whether half of the images are mirrored, left to right.
        seed: two int64 in a tensor, of this image in this epoch; see `study.data.images.augmentation.seeds`.
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
