"""The networks on images: parameters worked out by hand, the smallest images, and that each learns."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import pytest

from study import models
from study.core import configuration
from study.models import images, operations


def benchmark(name, **given):
    spec = configuration.load_named("benchmarks", name)
    return models.get(name, images.with_input(spec, given))


def dense(*widths):
    """Weights and biases of dense layers from the first width to the last."""
    return sum(a * b + b for a, b in zip(widths, widths[1:], strict=False))


def conv(width, *channels):
    """Weights and biases of convolutions of width x width from the first number of channels to the last."""
    return sum(width * width * a * b + b for a, b in zip(channels, channels[1:], strict=False))


def bottleneck_blocks(*blocks):
    """Residual blocks of ResNet: (input channels, width, number). Each convolution has a bias and batch norm (4)."""
    total = 0
    for inputs, width, number in blocks:
        for first in (True, *([False] * (number - 1))):
            entering = inputs if first else 4 * width
            total += conv(1, entering, width) + conv(3, width, width) + conv(1, width, 4 * width) + 4 * 6 * width
            total += (conv(1, entering, 4 * width) + 4 * 4 * width) if first else 0
    return total


def resnet(*numbers):
    """The four stages with so many blocks each; the stem; the output."""
    inputs, widths = (64, 256, 512, 1024), (64, 128, 256, 512)
    return conv(7, 3, 64) + 4 * 64 + bottleneck_blocks(*zip(inputs, widths, numbers, strict=True)) + dense(2048, 1000)


ALEXNET_CONVOLUTIONS = conv(11, 3, 64) + conv(5, 64, 192) + conv(3, 192, 384, 256, 256)
VGG_CONVOLUTIONS = conv(3, 3, 64, 128, 256, 256, 512, 512, 512, 512)
PARAMETERS = {
    # 28 x 28, halved twice: 7 x 7 x 64.
    "lenet": (28, 3, 1000, conv(5, 3, 32, 64) + dense(7 * 7 * 64, 1024, 1000)),
    # 32 - 4 = 28, 14, 10, 5: 5 x 5 x 16.
    "lenet_classic": (32, 1, 10, conv(5, 1, 6, 16) + dense(5 * 5 * 16, 120, 84, 10)),
    # 224: 55, 27, 13, 6: 6 x 6 x 256.
    "alexnet": (224, 3, 1000, ALEXNET_CONVOLUTIONS + dense(6 * 6 * 256, 4096, 4096, 1000)),
    # 224 / 32 = 7: 7 x 7 x 512.
    "vgg_a": (224, 3, 1000, VGG_CONVOLUTIONS + dense(7 * 7 * 512, 4096, 4096, 1000)),
    "resnet50": (224, 3, 1000, resnet(3, 4, 6, 3)),
    "resnet101": (224, 3, 1000, resnet(3, 4, 23, 3)),
}


def test_those_sums_worked_out():
    found = {name: parameters for name, (_, _, _, parameters) in PARAMETERS.items()}
    assert found == {"lenet": 4_290_984, "lenet_classic": 61_706, "alexnet": 61_100_840, "vgg_a": 132_863_336,
                     "resnet50": 25_636_712, "resnet101": 44_707_176}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if "lenet" in name else pytest.mark.slow)
                                  for name in PARAMETERS])  # fmt: skip
def test_parameters(name):
    side, channels, classes, parameters = PARAMETERS[name]
    side = 32 if "resnet" in name else side  # the mean of each map is taken, so that no weight depends on it
    made = benchmark(name, image_size=side, channels=channels, classes=classes)
    assert made.build_model((side, side, channels)).count_params() == parameters


@pytest.mark.parametrize(("name", "published"), [("inception_v1", 6.8e6), ("vgg_a", 133e6)])
def test_parameters_near_pittman_s_table_2(name, published):
    """The paper rounds. VGG-A's convolutions and dense layers are summed above; Inception V1's layers are built."""
    if name == "inception_v1":
        found = benchmark(name, image_size=32).build_model((32, 32, 3)).count_params()
        # The layers' own weights and biases; three values of batch norm in place of each of the 7,280 biases.
        assert found == 6_998_552 + 2 * 7_280
    else:
        found = PARAMETERS[name][3]
    assert found == pytest.approx(published, rel=0.05)


NETWORKS = ("lenet", "lenet_classic", "alexnet", "vgg_a", "inception_v1", "resnet50", "resnet101")
QUICK = ("lenet", "lenet_classic")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
                                  for name in NETWORKS if name != "resnet101"])  # fmt: skip
def test_the_smallest_image_builds_and_its_operations_are_those_of_the_layers(name):
    made = benchmark(name, classes=2)
    least, channels = made.minimum_size, made.spec["model"]["channels"]
    if name in ("lenet", "lenet_classic", "alexnet", "vgg_a"):  # the others' layers are padded
        with pytest.raises(ValueError, match=r"[Nn]egative|[Nn]on-positive|dimension|zero"):
            made.build_model((least - 1, least - 1, channels))
    made = benchmark(name, classes=2, image_size=least)
    model = made.build_model((least, least, channels))
    kernels = [(layer, layer.kernel.shape) for layer in model.layers if hasattr(layer, "kernel")]
    counted = [int(np.prod(shape)) * int(np.prod(layer.output_shape[1:-1])) for layer, shape in kernels]
    assert operations.forward_flop(name, made.spec["model"], least**2 * channels) == 2 * sum(counted)


def test_operations_at_full_size():
    """Multiply-adds of one image as the papers have them: AlexNet 0.7, VGG-A 7.6, GoogLeNet 1.5, ResNet-50 3.8 billion
    (arXiv:1512.03385, Table 1: 3.8 and 7.6).
    """
    expected = {"alexnet": 0.71, "vgg_a": 7.6, "inception_v1": 1.5, "resnet50": 3.8, "resnet101": 7.6}
    for name, billions in expected.items():
        model = benchmark(name).spec["model"]
        assert operations.forward_flop(name, model, 0) / 2e9 == pytest.approx(billions, rel=0.06), name


def test_l2_is_on_all_kernels_and_on_nothing_else():
    model = benchmark("alexnet", image_size=63, classes=2).build_model((63, 63, 3))
    kernels = [layer for layer in model.layers if hasattr(layer, "kernel")]
    assert len(kernels) == 8
    assert all(float(layer.kernel_regularizer.l2) == pytest.approx(0.0005) for layer in kernels)
    assert all(layer.bias_regularizer is None for layer in kernels)
    assert not benchmark("lenet", classes=2).build_model((28, 28, 3)).losses


@pytest.mark.slow
def test_l2_and_moving_statistics_of_a_network_from_keras():
    model = benchmark("resnet50", classes=2).build_model((32, 32, 3))
    kinds = [type(layer).__name__ for layer in model.layers]
    assert len(model.losses) == kinds.count("Conv2D") + kinds.count("Dense") == 54
    assert {layer.momentum for layer in model.layers if type(layer).__name__ == "BatchNormalization"} == {0.9}


def test_top_5_accuracy_where_there_are_more_classes_than_five():
    assert [getattr(each, "name", each) for each in benchmark("lenet").metrics()] == ["accuracy", "top5_accuracy"]
    assert benchmark("lenet", classes=5).metrics() == ["accuracy"]


# Image size and steps by which each has learnt two classes that differ in brightness; the large ones take minutes more
# on one core only because of their size.
SHORT_RUNS = {"lenet": (12, 12), "lenet_classic": (16, 20), "alexnet": (63, 8), "vgg_a": (32, 8),
              "inception_v1": (32, 8), "resnet50": (32, 6), "resnet101": (32, 6)}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
                                  for name in NETWORKS])  # fmt: skip
def test_the_loss_falls_in_a_short_run(name):
    import tf_keras as keras

    side, steps = SHORT_RUNS[name]
    made = benchmark(name, image_size=side, classes=2)
    channels = made.spec["model"]["channels"]
    drawn = np.random.default_rng(1)
    labels = np.arange(8) % 2
    x = (0.3 * drawn.standard_normal((8, side, side, channels)) + labels[:, None, None, None] - 0.5).astype(np.float32)
    keras.utils.set_random_seed(1)
    model = made.build_model((side, side, channels))
    for layer in model.layers:
        if type(layer).__name__ == "Dropout":  # ours needs the training's seeds
            layer.next_seed = lambda: (1, 2)
    optimizer = keras.optimizers.SGD(0.003, momentum=made.spec["momentum"])
    model.compile(loss=made.spec["loss"], optimizer=optimizer)
    losses = [model.train_on_batch(x, np.eye(2, dtype=np.float32)[labels]) for _ in range(steps)]
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.9 * losses[0], losses
