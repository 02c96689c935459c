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


def cut_squares(pixels: Any, side: int, changes: Any) -> Any:
    """Cut a square of ``side`` pixels out of each image, mirrored or not.

    pixels: uint8 (images, height, width, channels); squares. changes: of
    `study.data.images.augmentation.draw_light_changes`.
    """
    import tensorflow as tf

    channels = pixels.shape[-1]

    def cut(image: Any, change: Any) -> Any:
        square = tf.slice(image, tf.concat([change[:2], [0]], 0), [side, side, channels])
        return tf.cond(change[2] == MIRRORED, lambda: tf.reverse(square, [1]), lambda: square)

    result_spec = tf.TensorSpec((side, side, channels), tf.uint8)
    return tf.map_fn(lambda pair: cut(*pair), (pixels, changes), fn_output_signature=result_spec)


def change_image(pixels: Any, kind: str, side: int, flip: bool, seed: Any) -> Any:
    """Change an image at random: cut, scale, mirror and recolour; float32 (side, side, channels) from -1 to 1.

    Args:
        pixels: the whole image, a uint8 tensor (height, width, channels).
        kind: a name in `OF_WHOLE_IMAGES`.
        side: of the result, in pixels.
        flip: whether half of the images are mirrored, left to right.
        seed: two int64 in a tensor, of this image in this epoch; see `study.data.images.augmentation.make_seeds`.
    """
    import tensorflow as tf

    augmentation, channels = OF_WHOLE_IMAGES[kind], pixels.shape[-1]
    mirror, method, order, *colours = tf.unstack(
        tf.random.stateless_uniform([7], tf.random.experimental.stateless_fold_in(seed, 1))
    )
    box = tf.cast(_cut_random_box(pixels, augmentation.boxes, seed), tf.float32) / 255
    image = _compute_one_of(method, [_make_scaling(box, side, name) for name in augmentation.boxes.methods])
    if flip:
        image = tf.cond(mirror < 0.5, lambda: tf.reverse(image, [1]), lambda: image)
    if augmentation.colours:
        image = _compute_one_of(order, [_make_recolouring(image, names, colours) for names in ORDERS])
    return tf.ensure_shape(2 * tf.clip_by_value(image, 0, 1) - 1, (side, side, channels))


def _cut_random_box(pixels: Any, boxes: Boxes, seed: Any) -> Any:
    """Cut a random box out of an image, uint8; the whole image if a hundred boxes do not fit."""
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


def _make_scaling(box: Any, side: int, method: str) -> Callable[[], Any]:
    """Make a function that scales a box to ``side`` pixels by a method."""
    import tensorflow as tf

    return lambda: tf.image.resize(box, (side, side), method=method)


def _make_recolouring(image: Any, order: tuple[str, ...], drawn: list[Any]) -> Callable[[], Any]:
    """Make a function that changes the colours of an image in this order. drawn: four numbers from 0 to 1."""
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

    def recolour() -> Any:
        recoloured = image
        for name in order:
            recoloured = changes[name][0](recoloured, amounts[name])
        return recoloured

    return recolour


def _compute_one_of(number: Any, branches: list[Callable[[], Any]]) -> Any:
    """Compute one of the branches, all equally likely. number: drawn from 0 to below 1."""
    import tensorflow as tf

    if len(branches) == 1:
        return branches[0]()
    return tf.switch_case(tf.cast(number * len(branches), tf.int32), branches)
