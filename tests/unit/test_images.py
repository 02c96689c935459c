"""Images as data: layouts as their publishers write them, input formats, augmentation, and broken files."""

import gzip
import hashlib
import json
import os
import shutil
import struct
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from examples import define
from fake_communicator import FakeCommunicator

from study import workloads
from study.backends.tensorflow import devices, image_codec, input, strategy_input
from study.backends.tensorflow.augmentation import cut_squares
from study.backends.tensorflow.images import make_pixel_reader
from study.backends.tensorflow.input import make_batches, make_gatherer, report_read_errors
from study.backends.tensorflow.input_measures import InputMeasures
from study.core import configuration
from study.core.errors import StudyError
from study.data.images import augmentation, conversion, formats, source, synthetic
from study.data.images import damage as image_damage
from study.data.images.conversion import Options
from study.data.images.formats import FORMATS
from study.data.images.layouts import Source
from study.data.order import EpochOrder, draw_change_words
from study.data.samples import select_part
from study.experiment import expansion, inputs
from study.experiment.augmentation import augment_samples
from study.instruments import phases
from study.machines import machine
from study.training import rank
from study.training.loop import Loop
from study.workloads import images as image_models
from study.workloads.synthetic import generate_file

devices.limit_threads(1)  # can be set only before TensorFlow's first use in this process
import tensorflow as tf

DRAWN = np.random.default_rng(7)
PIXELS = DRAWN.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
LABELS = np.array([2, 0, 1, 1, 0, 2])
OPTIONS = Options(classes=3, channels=3, side=8)


def records(path, pairs, names=("image/encoded", "image/class/label")):
    """A TFRecord file with these (encoded image, label) under ImageNet's names of features."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for content, label in pairs:
            feature = {
                names[0]: tf.train.Feature(bytes_list=tf.train.BytesList(value=[content])),
                names[1]: tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                "image/height": tf.train.Feature(int64_list=tf.train.Int64List(value=[8])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    return path


@pytest.fixture(scope="module")
def encoded():
    return [image_codec.encode_jpeg(each, 95) for each in PIXELS]


def idx(magic, array):
    return struct.pack(f">I{array.ndim}I", magic, *array.shape) + array.astype(np.uint8).tobytes()


def mnist(folder, images, labels, compressed=False):
    end, pack = (".gz", gzip.compress) if compressed else ("", bytes)
    (folder / f"train-images-idx3-ubyte{end}").write_bytes(pack(idx(0x803, images)))
    (folder / f"train-labels-idx1-ubyte{end}").write_bytes(pack(idx(0x801, labels)))
    return Source("mnist", str(folder / f"train-images-idx3-ubyte{end}"))


def pixels_of(images, channels):
    return np.stack([image_codec.decode_tensor(each.content, channels).numpy() for each in images])


@pytest.mark.parametrize("compressed", [False, True])
def test_mnist_s_files(tmp_path, compressed):
    found = list(mnist(tmp_path, PIXELS[..., 0], LABELS, compressed).images(image_codec))
    assert [each.label for each in found] == list(LABELS)
    assert np.array_equal(pixels_of(found, 1), PIXELS[..., :1]), "PNG loses nothing"


def test_cifar_10_s_files(tmp_path):
    pixels = DRAWN.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    for number in (1, 2):
        part_of = range(2 * number - 2, 2 * number)
        rows = [bytes([LABELS[i]]) + pixels[i].transpose(2, 0, 1).tobytes() for i in part_of]
        (tmp_path / f"data_batch_{number}.bin").write_bytes(b"".join(rows))
    found = list(Source("cifar10", str(tmp_path / "data_batch_[12].bin")).images(image_codec))
    assert [each.label for each in found] == list(LABELS[:4])
    assert np.array_equal(pixels_of(found, 3), pixels)
    assert found[3].where == f"{tmp_path / 'data_batch_2.bin'}: record 1"


def test_imagenet_s_tfrecords_and_a_folder_of_classes(tmp_path, encoded):
    """Labels in TFRecords are from 1, or from where the dataset says; folders are classes by their names."""
    for number, chosen in enumerate((slice(0, 4), slice(4, 6))):
        records(tmp_path / f"train-{number:05d}-of-00002", zip(encoded[chosen], LABELS[chosen] + 1, strict=True))
    found = list(Source("tfrecord", str(tmp_path / "train-*")).images(image_codec))
    assert [(each.content, each.label) for each in found] == list(zip(encoded, LABELS, strict=True))
    assert [each.label for each in Source("tfrecord", str(tmp_path / "train-00000*"), 0).images(image_codec)] == [
        3,
        1,
        2,
        2,
    ]
    for name, content in (
        ("b/2.jpg", encoded[0]),
        ("a/9.png", image_codec.encode_png(PIXELS[1])),
        ("b/1.jpg", encoded[2]),
    ):
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / name).write_bytes(content)
    folder = Source("folder", str(tmp_path / "folder"))
    assert [(each.label, os.path.basename(each.where)) for each in folder.images(image_codec)] == [
        (0, "9.png"), (1, "1.jpg"), (1, "2.jpg")]  # fmt: skip
    assert folder.class_names() == ["a", "b"]


def cut(path, by=7):
    path.write_bytes(path.read_bytes()[:-by])
    return path


def broken(kind, folder, encoded):
    """(Source, what its message must have) of one broken dataset."""
    pairs = list(zip(encoded, LABELS + 1, strict=True))
    path = folder / "x.tfrecord"
    match kind:
        case "truncated TFRecord":
            return Source("tfrecord", str(cut(records(path, pairs)))), [f"{path}: record 5", "cut off"]
        case "other features":
            records(path, pairs, ("jpeg", "image/class/label"))
            return Source("tfrecord", str(path)), [f"{path}: record 0", "image/class/label, image/height, jpeg"]
        case "unknown class":
            return Source("tfrecord", str(records(path, [*pairs, (encoded[0], 4)]))), [
                f"{path}: record 6", "its class is 3, but there are 3 classes, from 0"]  # fmt: skip
        case "fewer than told":
            return Source("tfrecord", str(records(path, pairs[:5]))), ["has 5 images, 6 expected"]
        case "cut idx":
            made = mnist(folder, PIXELS[..., 0], LABELS)
            cut(folder / "train-images-idx3-ubyte", by=70)
            return made, ["train-images-idx3-ubyte: record 4", "restore it"]
        case "fewer labels":
            return mnist(folder, PIXELS[..., 0], LABELS[:4]), ["has 6 images", "has 4 labels"]
        case "cut CIFAR":
            (folder / "data_batch_1.bin").write_bytes(bytes(3073 + 100))
            return Source("cifar10", str(folder / "data_batch_1.bin")), ["data_batch_1.bin: record 1", "cut off"]
        case "too few folders":
            (folder / "a").mkdir()
            return Source("folder", str(folder)), ["has 1 sub-folders", "3 classes"]
        case _:
            return Source("folder", str(folder)), ["no folder with one sub-folder per class"]


# What else may be wrong with bytes is damaged at random by tests/fuzz/readers_of_images.py.
@pytest.mark.parametrize(
    "kind",
    ["truncated TFRecord", "other features", "unknown class", "fewer than told", "cut idx", "fewer labels", "cut CIFAR",
     "too few folders", "no folders"],
)  # fmt: skip
def test_a_broken_file_is_named_with_its_record_and_leaves_nothing(tmp_path, encoded, kind):
    folder = tmp_path / "raw"
    folder.mkdir()
    made, expected = broken(kind, folder, encoded)
    options = Options(3, 1 if made.layout == "mnist" else 3, 8)
    with pytest.raises(StudyError) as error:
        conversion.convert(
            made, "jpeg_files", tmp_path / "out" / "x", tmp_path / "out" / "x.json", options, image_codec, 6
        )
    assert "\n" not in str(error.value)
    assert all(text in str(error.value) for text in expected), str(error.value)
    assert not list((tmp_path / "out").iterdir()) if (tmp_path / "out").exists() else True


@pytest.fixture(scope="module")
def converted(tmp_path_factory, encoded):
    """The six images in all formats: {format: folder}; one PNG among them; shards of four."""
    folder, contents = tmp_path_factory.mktemp("converted"), [*encoded]
    contents[2] = image_codec.encode_png(PIXELS[2])
    records(folder / "raw", zip(contents, LABELS + 1, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "SHARD_RECORDS", 4)
        for name in FORMATS:
            made = Source("tfrecord", str(folder / "raw"))
            conversion.convert(made, name, folder / name, folder / f"{name}.json", OPTIONS, image_codec, 6)
    return {name: folder / name for name in FORMATS} | {"contents": contents}


def images_of(converted, name, resize=8, side=8, threads=1):
    shape = source.Shape(side, resize, 3, 3)
    return source.Images(source.Reader(formats.open_format(name, converted[name], 6)), shape, threads)


def test_train_and_test_folders_need_the_same_classes(tmp_path, encoded):
    files = {}
    for file, names in (("train", "ab"), ("test", "ac")):
        for name in names:
            (tmp_path / file / name).mkdir(parents=True)
            (tmp_path / file / name / "1.jpg").write_bytes(encoded[0])
        target = tmp_path / f"{file}.lmdb"
        conversion.convert(
            Source("folder", str(tmp_path / file)), "lmdb", target, f"{target}.json", Options(2, 3, 8), image_codec
        )
        files[file] = {"path": str(target), "sidecar": f"{target}.json"}
    spec = image_models.add_input_keys(configuration.load_named("benchmarks", "lenet"), {"image_size": 8, "classes": 2})
    with pytest.raises(StudyError, match=r"test.lmdb: its classes \['a', 'c'\] are not those of train: \['a', 'b'\]"):
        workloads.load_workload("lenet", spec).open(files, "lmdb", 1)


def test_all_formats_hold_the_same_images(converted):
    sidecars = [json.loads(converted[name].with_name(f"{name}.json").read_text()) for name in FORMATS]
    assert all(each["source"] == sidecars[0]["source"] and each["shape"] == [6, 192] for each in sidecars)
    assert sidecars[0]["source"]["bytes"] == sum(map(len, converted["contents"]))
    assert len(list(converted["tfrecord"].glob("shard-*"))) == 2
    assert sorted(path.suffix for path in converted["jpeg_files"].rglob("*.*g")) == [".jpg"] * 5 + [".png"]
    chosen = tf.constant([5, 0, 2, 4], tf.int64)
    wanted = np.stack([image_codec.decode_tensor(converted["contents"][i], 3).numpy() for i in chosen.numpy()])
    for name in FORMATS:
        assert np.array_equal(make_pixel_reader(images_of(converted, name))(chosen).numpy(), wanted), name
        x, y = make_gatherer(images_of(converted, name))(chosen)
        assert np.array_equal(y.numpy().argmax(axis=1), LABELS[chosen.numpy()])
        assert x.numpy() == pytest.approx(wanted / 127.5 - 1, abs=1e-6)
        assert len(select_part(images_of(converted, name), 1, 2)) == 3


def test_numpy_s_batches_of_pixels_are_tensorflow_s(converted):
    """Centres and light changes, also of a part of the images; encoded images are left to the framework."""
    chosen = np.array([2, 0, 1])
    for images in (
        images_of(converted, "memory", side=6),
        images_of(converted, "memory", side=5).change_at_random(7, True),
    ):
        images = select_part(images, 1, 2)
        changes = images.changes(chosen, 3)
        given = [chosen, changes] if changes.size else [chosen]
        wanted = [each.numpy() for each in make_gatherer(images)(*(tf.constant(each, tf.int64) for each in given))]
        found = images.batch(chosen, changes)
        assert all(np.array_equal(one, other) and one.dtype == other.dtype
                   for one, other in zip(found, wanted, strict=True))  # fmt: skip
    with pytest.raises(TypeError, match="decoded"):
        images_of(converted, "lmdb").batch(chosen)


@pytest.mark.parametrize(
    ("name", "file", "change", "expected"),
    [
        ("tfrecord", "shard-00001.tfrecord", lambda path: cut(path), "shard-00001.tfrecord: has .* at record 5"),
        ("tfrecord", "shard-00000.tfrecord", lambda path: path.unlink(), "shard-00000.tfrecord: has 0 bytes"),
        ("memory", "pixels.bin", lambda path: cut(path), "pixels.bin: has 1145 bytes, 1152 were written"),
        ("jpeg_files", "00002/000000005.jpg", lambda path: path.unlink(), "000000005.jpg: is missing"),
        ("lmdb", "index.npz", lambda path: path.write_text("x"), "index.npz: cannot be read"),
        ("lmdb", "images.lmdb", lambda path: path.write_bytes(b"x" * 9000), "cannot be opened as an LMDB database"),
    ],
)
def test_a_converted_folder_that_was_changed_is_refused_when_it_is_opened(
    converted, tmp_path, name, file, change, expected
):
    shutil.copytree(converted[name], tmp_path / name)
    change(tmp_path / name / file)
    with pytest.raises(StudyError, match=expected) as error:
        formats.open_format(name, tmp_path / name, 6)
    assert "Snakemake converts it again" in str(error.value)


@pytest.mark.parametrize(("name", "named"), [("jpeg_files", "000000001.jpg"), ("tfrecord", "shard-00000.tfrecord: r")])
def test_a_record_that_breaks_in_training_is_named(converted, tmp_path, name, named):
    """Zeros in place of an image, of the same length: only its decoding finds it."""
    shutil.copytree(converted[name], tmp_path / name)
    path = tmp_path / name / ("00000/000000001.jpg" if name == "jpeg_files" else "shard-00000.tfrecord")
    content = path.read_bytes().replace(converted["contents"][1], bytes(len(converted["contents"][1])))
    path.write_bytes(content)
    images = images_of({name: tmp_path / name}, name)
    with pytest.raises(StudyError, match=f"{named}.*neither JPEG nor PNG"), report_read_errors(images):
        for _ in make_batches(images, 3, EpochOrder(1)):
            pass


@pytest.mark.slow
def test_all_squares_and_both_sides_are_drawn():
    """Of 3 x 3 corners and two sides, each with the probability 1/18."""
    whole = np.arange(9, dtype=np.uint8).reshape(1, 3, 3, 1)
    changes = augmentation.draw_light_changes(draw_change_words(1, 0, 720), 2, True)
    many = cut_squares(tf.constant(np.repeat(whole, 720, 0)), 1, tf.constant(changes))
    counts = np.bincount(many.numpy().ravel(), minlength=9)
    assert (abs(counts - 80) < 5 * np.sqrt(80)).all(), counts


def test_without_random_changes_the_centre_is_taken_and_others_are_scaled():
    assert np.array_equal(image_codec.cut_centre(PIXELS, 4), PIXELS[:, 2:6, 2:6])
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 200
    assert (image_codec.fit_square(tf.constant(wide), 5).numpy() == 200)[:, 1:4].all()
    assert image_codec.fit_square(tf.constant(PIXELS[0]), 8).numpy() is not None
    assert np.array_equal(image_codec.fit_square(tf.constant(PIXELS[0]), 8), PIXELS[0])
    assert image_codec.fit_square(tf.constant(PIXELS[0]), 13).shape == (13, 13, 3)


@pytest.mark.slow
def test_what_the_model_gets_is_the_same_from_all_formats_and_changes_with_the_epoch(converted):
    """In two epochs; the order and the augmentation are those of the epoch."""
    found = {}
    for name in FORMATS:
        images, order = images_of(converted, name, side=6, threads=2).change_at_random(5, True), EpochOrder(1)
        dataset, contents = make_batches(images, 4, order), []
        for epoch in (0, 1, 0):
            order.set(epoch)
            made = [(x.numpy(), y.numpy()) for x, y in dataset]
            assert [len(x) for x, _ in made] == [4, 2]
            contents.append(b"".join(array.tobytes() for batch in made for array in batch))
        found[name] = contents
    assert len({tuple(each) for each in found.values()}) == 1
    first, second, again = found["tfrecord"]
    assert first == again != second


@pytest.mark.slow
def test_a_strategy_s_worker_gets_the_images_of_the_rank_with_its_number(converted):
    """In their order, cut out and mirrored alike, epoch by epoch."""
    (planned,) = expanded(gpus=2, batch_size=2, sharding="by_rank", strategy="parameter_server", servers=1)
    run, images = define(planned), images_of(converted, "lmdb", side=6, threads=2).change_at_random(5, True)
    assert run.benchmark["shuffle"]
    drawn = input.make_epoch_drawing(images, lambda epoch: (strategy_input.draw_positions(run, 1, 3, epoch), epoch))
    got = iter(strategy_input._make_dataset(make_gatherer(images), drawn, images.threads, run))
    order = EpochOrder(run.derived.seed + 1)
    for epoch in range(3):
        order.set(epoch)
        for x, y in make_batches(select_part(images, 1, 2), 2, order):
            worker_x, worker_y = next(got)
            assert np.array_equal(worker_x, x) and np.array_equal(worker_y, y), epoch


@pytest.mark.slow
def test_the_wait_for_input_is_the_time_for_which_nothing_came():
    def late(number):
        time.sleep(0.05)
        return number

    slow = tf.data.Dataset.range(3).map(lambda number: (tf.numpy_function(late, [number], tf.int64), number))
    measures = InputMeasures()
    assert len(list(measures.measure_waits(slow))) == 3
    found = measures.end_epoch(3)
    assert found.keys() == {"input_wait_per_step_s"}
    assert 0.05 <= found["input_wait_per_step_s"] < 5
    assert measures.end_epoch(3) == {"input_wait_per_step_s": 0}


def synthetic_images(**given):
    default = {"number": 70, "height": 24, "width": 24, "channels": 3, "classes": 7, "noise": 1.0,
               "record_bytes": None, "seed": 1, "split": 1}  # fmt: skip
    return synthetic.Images(**{**default, **given})


def written(path, made):
    path.write_bytes(b"".join(made.blocks(image_codec)))
    return list(Source("tfrecord", str(path)).images(image_codec))


def test_synthetic_images(tmp_path):
    """Balanced classes, equal bytes from equal seeds; a class is its pattern, in both splits, up to the noise."""
    train = written(tmp_path / "a", synthetic_images())
    assert np.bincount([each.label for each in train]).tolist() == [10] * 7
    assert (tmp_path / "a").read_bytes() == b"".join(synthetic_images().blocks(image_codec))
    assert written(tmp_path / "b", synthetic_images(seed=2))[0].content != train[0].content
    test = written(tmp_path / "c", synthetic_images(split=2, number=14))
    means = [pixels_of([each for each in train if each.label == label], 3).mean(axis=0) for label in range(7)]
    distances = [[np.square(pixels_of([each], 3)[0] - mean).sum() for mean in means] for each in test]
    nearest = [int(np.argmin(each)) for each in distances]
    assert nearest == [each.label for each in test]
    grey = written(tmp_path / "d", synthetic_images(channels=1, number=7))
    assert pixels_of(grey, 1).shape == (7, 24, 24, 1)


def test_the_bytes_of_synthetic_and_converted_images_stay_the_same(tmp_path):
    """SHA-256 of files of version 1 of generator and converter: finished data sets stay valid, run by run."""
    assert conversion.CONVERTER_VERSION == image_models.ImageWorkload.generator_version == 1, "compute them anew"
    raw = tmp_path / "raw"
    images = written(raw, synthetic_images(number=12, height=40, width=30, classes=3, record_bytes=1500, seed=7))
    assert len(images) == 12
    for name in ("tfrecord", "memory"):
        folder = tmp_path / name
        conversion.convert(Source("tfrecord", str(raw)), name, folder, f"{folder}.json", Options(3, 3, 16), image_codec)
    files = (raw, tmp_path / "tfrecord" / "shard-00000.tfrecord", tmp_path / "memory" / "pixels.bin")
    found = [hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in files]
    assert found == ["4b36feee9a4d04dd", "4b36feee9a4d04dd", "38c1f261fae2689f"]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0, 3.0])
@pytest.mark.parametrize(("height", "width"), [(375, 500), (32, 48)])
def test_sizes_that_the_plan_accepts_are_reached(channels, noise, height, width):
    least, most = synthetic.compute_reachable_bytes(height, width, channels, noise)
    made = synthetic_images(height=height, width=width, channels=channels, noise=noise)
    pixels = made._pixels(0, made._patterns()[0], image_codec)
    smallest, largest = (len(image_codec.encode_jpeg(pixels, quality)) for quality in (1, 100))
    assert smallest <= least and most <= largest


SMALL = {"source": "synthetic_images", "train_samples": 60, "test_samples": 20, "image_size": 16, "resize": 20,
         "classes": 6, "seed": 1}  # fmt: skip
STUDY = {"description": "a test", "tables": ["scaling"]}
RUN = {"benchmark": "lenet_classic", "scaling": "weak", "epochs": 2, "gpus": 1, "batch_size": 20, "loader": "tfrecord"}


def expanded(dataset=(), name="lenet_classic", **point):
    given = {key: value for key, value in {**SMALL, **dict(dataset)}.items() if value is not None}
    content = {**STUDY, "datasets": {name: given}}
    return expansion.expand_study("test", {**content, "runs": [{**RUN, "benchmark": name, **point}]}, "test.yaml").runs


def make_images(planned, data_dir):
    for file in planned.dataset.file_keys:
        raw = planned.dataset.locate_raw(data_dir, file)
        if not os.path.exists(raw):
            generate_file(raw, planned["benchmark"], planned.spec, planned.dataset.definition, file, codec=image_codec)
        told = inputs.build_image_options(planned.dataset, file)
        folder = planned.dataset.locate_images(data_dir, file, planned["loader"])
        made, options = inputs.describe_image_source(planned.dataset, data_dir, file), Options(**told["options"])
        conversion.convert(made, planned["loader"], folder, f"{folder}.json", options, image_codec, told["samples"])


@pytest.mark.slow
def test_training_is_the_same_from_all_formats_bit_for_bit(tmp_path):
    """A rank of two: final weights."""
    results = []
    for loader in FORMATS:
        (planned,) = expanded(gpus=2, sharding="by_rank", loader=loader, batch_size=10)
        make_images(planned, str(tmp_path / "data"))
        run = define(planned, data_dir=str(tmp_path / "data"))
        rank.run_rank(run, tmp_path / loader, phases.now(), lambda: FakeCommunicator(size=2))
        history = pd.read_csv(tmp_path / loader / "history.csv")
        metrics = json.loads((tmp_path / loader / "metrics.json").read_text())
        assert (history["input_wait_per_step_s"] > 0).all()
        assert metrics["workload"] == {"train_samples": 60, "test_samples": 20, "features": 256, "samples_per_rank": 30}
        results.append(metrics["ranks"][0]["final_weights_crc32"])
        assert {"top5_accuracy", "val_top5_accuracy"} <= set(history)
    assert len(set(results)) == 1, results


def staged_run(tmp_path, loader):
    """A run of one rank that copies its images to its node, a folder."""
    (planned,) = expanded(loader=loader, storage="nvme")
    make_images(planned, str(tmp_path / "data"))
    (tmp_path / "node").mkdir(exist_ok=True)
    on = machine.load("local") | {"storage_on_nodes": {"nvme": str(tmp_path / "node")}}
    return inputs.define_run(planned, on, str(tmp_path / "data"))


@pytest.mark.slow
@pytest.mark.parametrize("loader", FORMATS)
def test_copies_on_the_node_have_no_name_while_the_model_trains_if_files_stay_open(tmp_path, monkeypatch, loader):
    """So a run that is killed in training leaves nothing. Of one file per image, which may be millions, names stay."""
    run, seen, train = staged_run(tmp_path, loader), [], Loop.run
    monkeypatch.setattr(Loop, "run", lambda self: seen.append(len(list((tmp_path / "node").iterdir()))) or train(self))
    rank.run_rank(run, tmp_path / "run", phases.now(), lambda: FakeCommunicator())
    assert seen == [1 if loader == "jpeg_files" else 0]
    assert list((tmp_path / "node").iterdir()) == []
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())["ranks"][0]
    folders = [Path(paths["path"]) for paths in run.data.values()]
    size = sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
    assert metrics["staged_mb"] == size / 1e6
    assert metrics["shared_read_mb"] == pytest.approx(size / 1e6, abs=0.02), "sidecars besides"


def test_in_the_collapse_of_the_learning_rate_augmentation_is_light(converted):
    point = {"augmentation": "scale_and_aspect", "loader": "lmdb", "epochs": 3}
    (run,) = expanded(**point, learning_rate_decay="collapsed", decay_epochs=1)
    images = augment_samples(images_of(converted, "lmdb"), define(run))
    assert (images.augmentation, images.light_from) == ("scale_and_aspect", 2)


@pytest.mark.slow
def test_how_batches_are_made_changes_no_bit_and_cached_images_are_read_once(tmp_path, monkeypatch):
    """Images that are cut out and mirrored at random, in two epochs."""
    results, reads = {}, []
    read = source.Reader.read
    monkeypatch.setattr(source.Reader, "read", lambda self, positions: reads.append(positions) or read(self, positions))
    for name, point in {
        "usual": {},
        "at once": {"prefetch_batches": 4, "map_parallel_calls": 3},
        "cached": {"cache_samples": True, "prefetch_batches": 0},
        "buffered": {"shuffle_buffer_samples": 10},
        "boxes": {"augmentation": "scale_and_aspect"},
    }.items():
        (planned,) = expanded({"flip": True}, **point)
        make_images(planned, str(tmp_path / "data"))
        run = define(planned, data_dir=str(tmp_path / "data"))
        reads.clear()
        rank.run_rank(run, tmp_path / name, phases.now(), lambda: FakeCommunicator())
        metrics = json.loads((tmp_path / name / "metrics.json").read_text())["ranks"][0]
        results[name] = metrics["final_weights_crc32"], sum(map(len, reads))
    assert len({weights for name, (weights, _) in results.items() if name not in ("buffered", "boxes")}) == 1
    assert len({results[name][0] for name in ("usual", "buffered", "boxes")}) == 3
    assert results["usual"][1] - results["cached"][1] == 60, "the second epoch reads no training image"


def test_a_dataset_of_images_has_its_own_name_for_what_it_gives():
    name = expanded()[0].dataset.id
    assert name == "synthetic-60-20x16x16x1-6classes-seed1-resize20"
    changes = {"seed": 2, "noise": 0.5, "stored_width": 50, "stored_height": 40, "flip": True, "resize": 21,
               "channels": 3}  # fmt: skip
    others = [expanded({key: value})[0].dataset.id for key, value in changes.items()]
    assert len({name, *others}) == 8
    large = {"stored_width": 500, "stored_height": 375, "record_kb": 115}
    assert expanded(large)[0].dataset.id == f"{name}-stored_width500-stored_height375-record_kb115-v2"
    assert expanded({"resize": None})[0].spec["model"]["resize"] == 16, "an image size alone is both"


def png_of_size(width, height):
    """The begin of a PNG that tells this size."""
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", width, height, 8, 2, 0, 0, 0) + bytes(4)


def jpeg_of_size(width, height):
    """The begin of a JPEG that tells this size, after a segment of an application."""
    return b"\xff\xd8\xff\xe0\x00\x04ab\xff\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(12)


@pytest.mark.parametrize("encode", [png_of_size, jpeg_of_size])
@pytest.mark.parametrize(
    ("size", "told"),
    [
        ((1, 12_000), "a.x: has 1 x 12000 pixels: scaled to the network's side, its longer one would be more than 100"),
        ((20_000, 20_000), "a.x: has 20000 x 20000 pixels, more than 200,000,000; scale it down"),
        ((600, 6), None), ((601, 6), "crop the image, or leave it out"), ((6, 601), "crop the image"),
    ],
)  # fmt: skip
def test_an_image_that_would_fill_the_memory_is_refused_by_its_header(encode, size, told):
    content = encode(*size)
    assert image_damage.read_size(content) == size[::-1]
    with pytest.raises(StudyError) as error:
        conversion.decode_image(content, "a.x", 3, image_codec)
    assert (told or "cannot be decoded") in str(error.value), "of a size that may be, the rest of the file is judged"
