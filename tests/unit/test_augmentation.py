"""Random changes of whole images: boxes, ways to scale them, colours, and on what they depend."""

import colorsys

import numpy as np
import pytest
import tensorflow as tf

from study.backends.tensorflow import augmentation as tensorflow_augmentation
from study.backends.tensorflow import image_codec
from study.backends.tensorflow.input import make_gatherer
from study.data.images import augmentation, conversion, formats, source
from study.data.images.layouts import Source
from study.data.images.synthetic import Images
from study.data.order import draw_change_words

ENCODED = [name for name in formats.FORMATS if name != "memory"]
HEIGHT, WIDTH = 100, 150
# A pixel's values are its place: row, column, and nothing.
PLACES = np.stack([*np.mgrid[:HEIGHT, :WIDTH], np.zeros((HEIGHT, WIDTH))], axis=-1).astype(np.uint8)


def seeds(number):
    return [tf.constant(each[:2]) for each in augmentation.make_seeds(draw_change_words(3, 0, number))]


@pytest.mark.parametrize(
    ("kind", "least", "widest"),
    [("slim", 0.1, 1.33), ("scale_and_aspect", 0.08, 4 / 3)],  # slim: a box below 10 % is drawn again
)
def test_boxes_have_the_areas_and_shapes_of_their_source(kind, least, widest):
    boxes = augmentation.OF_WHOLE_IMAGES[kind].boxes
    cut = tf.function(lambda seed: tf.shape(tensorflow_augmentation._cut_random_box(tf.constant(PLACES), boxes, seed)))
    sizes = np.array([cut(seed).numpy()[:2] for seed in seeds(400)])
    share, aspect = sizes.prod(axis=1) / (HEIGHT * WIDTH), sizes[:, 1] / sizes[:, 0]
    assert share.min() >= least - 0.02 and share.min() < 0.2 and share.max() > 0.8
    assert 0.72 < aspect.min() < 0.85 and 1.2 < aspect.max() < widest + 0.04
    assert len({tuple(each) for each in sizes}) > 300


def by_hand(pixels, name, amount):
    """One change of the colours of float pixels, a pixel at a time."""
    if name == "brightness":
        return pixels + amount
    if name == "contrast":
        mean = pixels.mean(axis=(0, 1), keepdims=True)
        return mean + amount * (pixels - mean)
    found = np.empty_like(pixels)
    for place in np.ndindex(pixels.shape[:2]):
        hue, saturation, value = colorsys.rgb_to_hsv(*pixels[place])
        if name == "hue":
            hue = (hue + amount) % 1
        else:
            saturation = min(1, saturation * amount)
        found[place] = colorsys.hsv_to_rgb(hue, saturation, value)
    return found


@pytest.mark.parametrize("order", augmentation.ORDERS)
def test_colours_change_in_each_order_as_by_hand(order):
    """A draw of 0.75 adds 16/255, multiplies saturation and contrast by 1.25 and turns the hue by 0.1."""
    pixels = np.random.default_rng(1).uniform(0.3, 0.6, (3, 2, 3)).astype(np.float32)
    amounts = {"brightness": 16 / 255, "saturation": 1.25, "hue": 0.1, "contrast": 1.25}
    wanted = pixels.astype(float)
    for name in order:
        wanted = by_hand(wanted, name, amounts[name])
    found = tensorflow_augmentation._make_recolouring(tf.constant(pixels), order, [tf.constant(0.75)] * 4)()
    assert found.numpy() == pytest.approx(wanted, abs=2e-5)
    assert sorted(order) == sorted(amounts) and len({*augmentation.ORDERS}) == 4


@pytest.mark.slow
def test_each_way_to_scale_a_box_is_drawn_equally_often():
    numbers = tf.random.stateless_uniform([4000], [1, 2])
    drawn = tf.function(
        lambda number: tensorflow_augmentation._compute_one_of(number, [lambda i=i: tf.constant(i) for i in range(4)])
    )
    counts = np.bincount([drawn(number).numpy() for number in numbers[:400]], minlength=4)
    assert (abs(counts - 100) < 5 * np.sqrt(75)).all(), counts
    assert len(augmentation.OF_WHOLE_IMAGES["slim"].boxes.methods) == 4


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """Six images of 50 x 30 pixels in each format with encoded images."""
    folder = tmp_path_factory.mktemp("images")
    made = Images(6, 30, 50, 3, 3, noise=1.0, record_bytes=None, seed=1, split=1)
    (folder / "raw").write_bytes(b"".join(made.blocks(image_codec)))
    for name in ENCODED:
        conversion.convert(Source("tfrecord", str(folder / "raw")), name, folder / name, folder / f"{name}.json",
                           conversion.Options(3, 3, 20), image_codec)  # fmt: skip
    return folder


def images_of(folder, name, kind, light_from=None, seed=5):
    reader = source.Reader(formats.open_format(name, folder / name, 6))
    return (
        source.Images(reader, source.Shape(16, 20, 3, 3))
        .change_at_random(seed, True)
        .change_augmentation(kind, light_from)
    )


def inputs(images, positions, epoch):
    changes = images.changes(np.array(positions), epoch)
    given = [positions, changes] if changes.size else [positions]
    return make_gatherer(images)(*(tf.constant(each, tf.int64) for each in given))[0].numpy()


@pytest.mark.parametrize("kind", list(augmentation.OF_WHOLE_IMAGES))
def test_changes_follow_from_seed_epoch_and_sample_alone(converted, kind):
    first = inputs(images_of(converted, "tfrecord", kind), [0, 1, 2, 5], 0)
    assert first.shape == (4, 16, 16, 3) and first.dtype == np.float32
    assert -1 <= first.min() < -0.3 and 0.3 < first.max() <= 1
    for name in ENCODED:
        assert np.array_equal(first[[3, 1]], inputs(images_of(converted, name, kind), [5, 1], 0)), name
    others = [inputs(images_of(converted, "lmdb", kind), [0, 1, 2, 5], 1),
              inputs(images_of(converted, "lmdb", kind, seed=6), [0, 1, 2, 5], 0)]  # fmt: skip
    assert all(not np.array_equal(first[sample], other[sample]) for other in others for sample in range(4))


def test_validation_and_training_without_changes_take_the_centre(converted):
    images = images_of(converted, "lmdb", "slim")
    centre = make_gatherer(images)(tf.constant([0, 3], tf.int64))[0].numpy()
    assert np.array_equal(inputs(images_of(converted, "lmdb", "none"), [0, 3], 7), centre)
    assert not np.array_equal(inputs(images, [0, 3], 7), centre)


def test_from_an_epoch_on_the_changes_are_light(converted):
    images = images_of(converted, "lmdb", "scale_and_aspect", light_from=2)
    light, whole = (images_of(converted, "lmdb", kind) for kind in ("light", "scale_and_aspect"))
    for epoch in range(4):
        wanted = whole if epoch < 2 else light
        assert np.array_equal(inputs(images, [0, 3], epoch), inputs(wanted, [0, 3], epoch)), epoch
