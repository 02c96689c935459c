"""The networks on images: parameters worked out by hand, the smallest images, and that each learns."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from study import workloads
from study.backends.tensorflow import seeds
from study.core import configuration
from study.workloads import images, operations


def benchmark(name, **given):
    spec = configuration.load_named("benchmarks", name)
    return workloads.load_benchmark(name, images.add_input_keys(spec, given))


def dense(*widths):
    """Weights and biases of dense layers from the first width to the last."""
    return sum(a * b + b for a, b in zip(widths, widths[1:], strict=False))


def conv(width, *channels):
    """Weights and biases of convolutions of width x width from the first number of channels to the last."""
    return sum(width * width * a * b + b for a, b in zip(channels, channels[1:], strict=False))


def resnet(*blocks):
    """Parameters and moving statistics of a ResNet with so many units in each stage.

    A convolution has no bias; each of its filters has four values of batch normalisation.
    """
    weights, filters = 7 * 7 * 3 * 64, 64
    for inputs, width, number in zip((64, 256, 512, 1024), (64, 128, 256, 512), blocks, strict=True):
        weights += (inputs + 9 * width + 4 * width) * width + 4 * inputs * width
        weights += (number - 1) * (4 * width + 9 * width + 4 * width) * width
        filters += 6 * width * number + 4 * width
    return weights + 4 * filters + dense(2048, 1000)


ALEXNET_CONVOLUTIONS = conv(11, 3, 64) + conv(5, 64, 192) + conv(3, 192, 384, 384, 256)
ONE_TOWER_CONVOLUTIONS = conv(11, 3, 64) + conv(5, 64, 192) + conv(3, 192, 384, 256, 256)
VGG_CONVOLUTIONS = conv(3, 3, 64, 128, 256, 256, 512, 512, 512, 512)
PARAMETERS = {
    # 28 x 28, halved twice: 7 x 7 x 64.
    "lenet": (28, 3, 1000, conv(5, 3, 32, 64) + dense(7 * 7 * 64, 1024, 1000)),
    # 32 - 4 = 28, 14, 10, 5: 5 x 5 x 16.
    "lenet_classic": (32, 1, 10, conv(5, 1, 6, 16) + dense(5 * 5 * 16, 120, 84, 10)),
    # 224: 54, 26, 12, 5: 5 x 5 x 256.
    "alexnet": (224, 3, 1000, ALEXNET_CONVOLUTIONS + dense(5 * 5 * 256, 4096, 4096, 1000)),
    # 224 and a border of 2: 55, 27, 13, 6: 6 x 6 x 256.
    "alexnet_one_tower": (224, 3, 1000, ONE_TOWER_CONVOLUTIONS + dense(6 * 6 * 256, 4096, 4096, 1000)),
    # 224 / 32 = 7: 7 x 7 x 512.
    "vgg_a": (224, 3, 1000, VGG_CONVOLUTIONS + dense(7 * 7 * 512, 4096, 4096, 1000)),
    "resnet50": (224, 3, 1000, resnet(3, 4, 6, 3)),
    "resnet101": (224, 3, 1000, resnet(3, 4, 23, 3)),
}


NETWORKS = ("lenet", "lenet_classic", "alexnet", "alexnet_one_tower", "vgg_a", "inception_v1", "googlenet", "resnet50",
            "resnet101")  # fmt: skip
LONG = dict.fromkeys(("vgg_a", "googlenet", "resnet50", "resnet101"), pytest.mark.long)
QUICK = ("lenet", "lenet_classic")
UNPADDED = ("lenet", "lenet_classic", "alexnet", "alexnet_one_tower", "vgg_a")  # the others' layers take any size
EACH = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NETWORKS]


@functools.cache
def smallest(name):
    """(The benchmark, its model) for two classes and the smallest images; built once, since that takes seconds."""
    side = benchmark(name).minimum_size
    made = benchmark(name, classes=2, image_size=side)
    seeds.set_random_seed(1)
    return made, made.build_model((side, side, made.spec["model"]["channels"]))


@pytest.mark.parametrize("name", UNPADDED)
def test_parameters(name):
    side, channels, classes, parameters = PARAMETERS[name]
    made = benchmark(name, image_size=side, channels=channels, classes=classes)
    with tf.Graph().as_default():  # in which weights have shapes and no values: they would take half a gigabyte
        assert made.build_model((side, side, channels)).count_params() == parameters


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", pytest.param("resnet101", marks=pytest.mark.long)])
def test_parameters_of_residual_networks(name):
    """Of the small model with the output of the large one: each map's mean is taken, so no other weight differs."""
    assert smallest(name)[1].count_params() - dense(2048, 2) + dense(2048, 1000) == PARAMETERS[name][3]


# Of Inception V1, Table 1 of arXiv:1409.4842: input channels of a module, then its filters. Batch norm has three values
# for each of the 7,280 filters in place of a bias.
INCEPTION = ((192, 64, 96, 128, 16, 32, 32), (256, 128, 128, 192, 32, 96, 64), (480, 192, 96, 208, 16, 48, 64),
             (512, 160, 112, 224, 24, 64, 64), (512, 128, 128, 256, 24, 64, 64), (512, 112, 144, 288, 32, 64, 64),
             (528, 256, 160, 320, 32, 128, 128), (832, 256, 160, 320, 32, 128, 128),
             (832, 384, 192, 384, 48, 128, 128))  # fmt: skip


def inception(width):
    """Weights and biases of Inception V1 with filters of this width in the third branch."""
    total = conv(7, 3, 64) + conv(1, 64, 64) + conv(3, 64, 192) + dense(1024, 1000)
    for inputs, one, before, three, before_third, third, pooled in INCEPTION:
        total += conv(1, inputs, one) + conv(1, inputs, before) + conv(3, before, three) + conv(1, inputs, pooled)
        total += conv(1, inputs, before_third) + conv(width, before_third, third)
    return total


@pytest.mark.slow
@pytest.mark.parametrize(("name", "expected"), [("inception_v1", 6_632_184), ("googlenet", 7_013_112)])
def test_parameters_of_inception(name, expected):
    found = smallest(name)[1].count_params() - dense(1024, 2) + dense(1024, 1000)
    filters = 64 + 64 + 192 + sum(sum(module[1:]) for module in INCEPTION)
    assert (filters, inception(3), inception(5)) == (7_280, 6_617_624, 6_998_552)
    assert found == inception(3 if name == "inception_v1" else 5) + 2 * 7_280 == expected


def forward_flop(name, model, features):
    """Operations of the forward pass on one sample."""
    return 2 * sum(layer.multiply_adds for layer in operations.list_layers(name, model, features))


@pytest.mark.parametrize("name", EACH)
def test_the_smallest_image_builds_and_its_operations_and_parameters_are_counted_from_layers(name):
    made, model = smallest(name)
    settings, least = made.spec["model"], made.minimum_size
    kernels = [(layer, layer.kernel.shape) for layer in model.layers if hasattr(layer, "kernel")]
    counted = [int(np.prod(shape)) * int(np.prod(layer.output_shape[1:-1])) for layer, shape in kernels]
    assert forward_flop(name, settings, least**2 * settings["channels"]) == 2 * sum(counted)
    trained = sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)
    assert operations.count_parameters(name, settings, 0) == trained
    assert (
        sum(layer.statistics for layer in operations.list_layers(name, settings, 0)) == model.count_params() - trained
    )
    if name in UNPADDED:
        with pytest.raises(ValueError, match=r"[Nn]egative|[Nn]on-positive|dimension|zero"):
            made.build_model((least - 1, least - 1, settings["channels"]))


def test_operations_at_full_size():
    """Multiply-adds of one image as the papers have them: AlexNet 0.7, VGG-A 7.6, GoogLeNet 1.5 billion."""
    for name, billions in {"alexnet_one_tower": 0.71, "vgg_a": 7.6, "googlenet": 1.5}.items():
        model = benchmark(name).spec["model"]
        assert forward_flop(name, model, 0) / 2e9 == pytest.approx(billions, rel=0.06), name


@pytest.mark.parametrize(("name", "blocks", "billions"), [("resnet50", (3, 4, 6, 3), 3.48),
                                                          ("resnet101", (3, 4, 23, 3), 7.19)])  # fmt: skip
def test_operations_of_residual_networks_with_the_stride_in_a_stage_s_last_unit(name, blocks, billions):
    """TF-Slim's: 3.48 billion multiply-adds of ResNet-50, where the stride in the first 1 x 1 gives 3.86."""
    by_hand = 112**2 * 7 * 7 * 3 * 64 + 2048 * 1000
    for stage, (number, inputs) in enumerate(zip(blocks, (64, 256, 512, 1024), strict=True)):
        width, side = 64 << stage, 56 >> stage
        after = side // 2 if stage < 3 else side
        for unit in range(number):
            entering, left = inputs if unit == 0 else 4 * width, after if unit == number - 1 else side
            by_hand += side**2 * entering * width + left**2 * (9 + 4) * width**2
            by_hand += side**2 * entering * 4 * width if unit == 0 else 0
    assert forward_flop(name, benchmark(name).spec["model"], 0) == 2 * by_hand
    assert by_hand / 1e9 == pytest.approx(billions, abs=0.005)


@pytest.mark.parametrize("name", EACH)
def test_l2_is_on_all_kernels_and_on_nothing_else(name):
    made, model = smallest(name)
    kernels = [layer for layer in model.layers if hasattr(layer, "kernel")]
    strength = made.spec["model"]["l2"]
    assert len(model.losses) == (len(kernels) if strength else 0)
    for layer in kernels:
        assert not strength or float(layer.kernel_regularizer.l2) == pytest.approx(strength)
        assert layer.bias_regularizer is None
    decays = {layer.momentum for layer in model.layers if type(layer).__name__ == "BatchNormalization"}
    assert decays == ({0.9} if name in ("inception_v1", "googlenet", "resnet50", "resnet101") else set())


# The others have the same layers.
@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG.get(name, ())) for name in NETWORKS])
def test_the_loss_falls_in_a_short_run(name):
    """Two classes that differ in brightness: after ten steps the cross-entropy, without L2, is at most half.

    Without a graph, which takes longer to build and to optimise than the ten steps take.
    """
    made, model = smallest(name)
    drawn, labels, shape = np.random.default_rng(1), np.arange(16) % 2, model.input_shape[1:]
    x = 0.3 * drawn.standard_normal((16, *shape)) + labels[:, None, None, None] - 0.5
    for layer in model.layers:
        if type(layer).__name__ == "Dropout":  # ours has the training's seeds
            layer.next_seed = lambda: (1, 2)
    optimizer = keras.optimizers.SGD(0.002 if "resnet" in name else 0.005, momentum=made.spec["momentum"])
    model.compile(loss=made.spec["loss"], optimizer=optimizer, metrics=[made.spec["loss"]], run_eagerly=True)
    y = np.eye(2, dtype=np.float32)[labels]
    losses = [model.train_on_batch(x.astype(np.float32), y)[1] for _ in range(10)]
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.5 * losses[0], losses
