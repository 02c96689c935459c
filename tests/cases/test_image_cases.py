"""Images as people have them: damaged, incomplete, in folders that other programs write into."""

import gzip
import io
import os
import struct
import unicodedata

import numpy as np
import pytest
from PIL import Image

from study import plan
from study.backends.tensorflow import image_codec
from study.core.errors import StudyError
from study.data.images import conversion
from study.data.images.conversion import Options
from study.data.images.layouts import Source

DRAWN = np.clip(np.random.default_rng(3).normal(128, 40, (64, 64, 3)), 0, 255).astype(np.uint8)


def jpeg(pixels=DRAWN, **options):
    held = io.BytesIO()
    Image.fromarray(pixels).save(held, "JPEG", quality=90, **options)
    return held.getvalue()


def image(path, content=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(jpeg(DRAWN[:8, :8]) if content is None else content)
    return path


def records(path, labels):
    import tensorflow as tf

    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for label in labels:
            writer.write(image_codec.make_example(jpeg(DRAWN[:8, :8]), label))


def labels(layout, path, first_label=None):
    return [each.label for each in Source(layout, str(path), first_label).images(image_codec)]


def refusal(call, *arguments, **named):
    with pytest.raises(StudyError) as refused:
        call(*arguments, **named)
    return str(refused.value)


def shards(folder, total=3, begin=0):
    for number in range(begin, begin + total):
        records(folder / f"train-{number:05d}-of-{total:05d}", (1, 2))
    return folder / "train-*"


@pytest.mark.case("tfrecord-missing-shard", source="google-deepmind/open_x_embodiment #40; tensorflow/models #1213",
                  right="refused: the shard's name")  # fmt: skip
@pytest.mark.parametrize("change", ["missing", "empty"])
def test_a_shard_of_n_that_is_missing_or_empty(tmp_path, change):
    pattern = shards(tmp_path)
    assert len(labels("tfrecord", pattern)) == 6
    second = tmp_path / "train-00001-of-00003"
    second.write_bytes(b"") if change == "empty" else second.unlink()
    message = refusal(labels, "tfrecord", pattern)
    assert message.startswith(f"{second}: is {change}")


@pytest.mark.case("shards-from-one", source="our own", right="3 shards from 1 are whole; without the last refused")
def test_shards_that_are_numbered_from_one(tmp_path):
    pattern = shards(tmp_path, begin=1)
    assert len(labels("tfrecord", pattern)) == 6
    (tmp_path / "train-00003-of-00003").unlink()
    assert "is missing" in refusal(labels, "tfrecord", pattern)


@pytest.mark.case("shard-twice", source="our own", right="refused: 8 images of 6")
def test_a_shard_that_is_there_twice(tmp_path):
    pattern = shards(tmp_path)
    records(tmp_path / "train-00001-of-00003 (1)", (1, 2))
    message = refusal(labels, "tfrecord", pattern)
    assert "is shard 1, as train-00001-of-00003 is" in message


@pytest.mark.case("shards-of-two-sets", source="our own", right="refused")
def test_shards_of_two_sets_under_one_pattern(tmp_path):
    pattern = shards(tmp_path)
    shards(tmp_path, total=2)
    assert "are shards of two sets, of " in refusal(labels, "tfrecord", pattern)


@pytest.mark.case("shards-chosen-by-pattern", source="our own", right="what the pattern chooses is read")
def test_a_pattern_may_choose_some_shards(tmp_path):
    shards(tmp_path)
    assert len(labels("tfrecord", tmp_path / "train-0000[02]*")) == 4
    assert len(labels("tfrecord", tmp_path / "train-00001-of-00003")) == 2


@pytest.mark.case("unfinished-download", source="our own", right="refused; checksum files are no data")
def test_files_beside_the_shards(tmp_path):
    pattern = shards(tmp_path)
    (tmp_path / "train-00000-of-00003.crc").write_bytes(b"1234")
    (tmp_path / ".train-00000-of-00003.swp").write_bytes(b"1234")
    assert len(labels("tfrecord", pattern)) == 6
    (tmp_path / "train-00003-of-00004.part").write_bytes(b"1234")
    assert "unfinished download" in refusal(labels, "tfrecord", pattern)


@pytest.mark.case("cifar-batch-missing", source="our own", right="refused: data_batch_2.bin, data_batch_4.bin")
@pytest.mark.parametrize(
    ("there", "missing"), [((1, 3, 4, 5), "data_batch_2.bin"), ((1, 2, 3), "data_batch_4.bin and 1")]
)
def test_a_batch_of_cifar_10_that_is_missing(tmp_path, there, missing):
    for number in there:
        (tmp_path / f"data_batch_{number}.bin").write_bytes(bytes(3073))
    message = refusal(labels, "cifar10", tmp_path / "data_batch_*.bin")
    assert message.startswith(f"{tmp_path}/{missing}")
    assert "is missing" in message
    assert labels("cifar10", tmp_path / f"data_batch_[{there[0]}{there[2]}].bin") == [0, 0]


@pytest.mark.case(
    "shards-numbered-without-zeros", source="our own", right="train_2 is missing; 0, 7, 300 are no series"
)
def test_shards_whose_numbers_are_not_padded(tmp_path):
    for number in (0, 1, 3):
        records(tmp_path / f"train_{number}.tfrecord", (1,))
    message = refusal(labels, "tfrecord", tmp_path / "train_*")
    assert message.startswith(f"{tmp_path}/train_2.tfrecord: is missing")
    for number in (0, 7, 300):
        records(tmp_path / f"patient{number}.tfrecord", (1,))
    assert len(labels("tfrecord", tmp_path / "patient*")) == 3


@pytest.mark.case("pattern-of-inner-folders", source="our own", right="[0, 1, 2]: the files of all folders")
def test_two_stars_stand_for_any_number_of_folders(tmp_path):
    for label, name in enumerate(("a/b/x", "a/x", "x"), 1):
        records(tmp_path / f"{name}.tfrecord", (label,))
    records(tmp_path / "__MACOSX" / "x.tfrecord", (9,))
    records(tmp_path / "a" / ".cache" / "x.tfrecord", (9,))
    found = labels("tfrecord", tmp_path / "**" / "*.tfrecord")
    assert found == [0, 1, 2]
    assert labels("tfrecord", tmp_path / "*" / "x.tfrecord") == [1], "what is no data"


@pytest.mark.case("shard-twice-by-link", source="our own", right="refused: the same file, or the same compressed")
@pytest.mark.parametrize("how", ["link", "hard link", "folder", "compressed"])
def test_one_file_under_two_names(tmp_path, how):
    first = tmp_path / "a" / "train-0.tfrecord"
    records(first, (1, 2))
    pattern = tmp_path / "*" / "*.tfrecord*"
    if how == "folder":
        (tmp_path / "b").symlink_to("a")
    elif how == "compressed":
        first.with_name(f"{first.name}.gz").write_bytes(gzip.compress(first.read_bytes()))
    else:
        second = first.with_name("latest.tfrecord")
        second.symlink_to(first) if how == "link" else second.hardlink_to(first)
    message = refusal(labels, "tfrecord", pattern)
    assert "is the same file as" in message or "once more, compressed" in message


@pytest.mark.case("folder-in-place-of-file", source="our own", right="refused: is a folder, is a file")
def test_a_folder_where_files_are_expected_and_a_file_where_a_folder_is(tmp_path):
    image(tmp_path / "images" / "a" / "0.jpg")
    for layout in ("tfrecord", "mnist", "cifar10"):
        assert "images: is a folder; give the file, or a pattern" in refusal(labels, layout, tmp_path / "images")
    records(tmp_path / "train-0.tfrecord", (1,))
    (tmp_path / "train-logs").mkdir()
    assert "train-logs: is a folder, where others are files" in refusal(labels, "tfrecord", tmp_path / "train-*")
    (tmp_path / "images.zip").write_bytes(b"PK\x03\x04" + bytes(26))
    message = refusal(labels, "folder", tmp_path / "images.zip")
    assert "images.zip: is a file, a folder with one sub-folder per class is expected: it is a zip archive" in message
    (tmp_path / "images" / "b").symlink_to("nothing")
    assert "b: is a link to nothing" in refusal(labels, "folder", tmp_path / "images")


@pytest.mark.case(
    "png-of-16-bits", source="tjhann/imageformats #17; zune-image #52", right="refused: 4096 values became 16"
)
def test_png_of_16_bits():
    held = io.BytesIO()
    Image.fromarray((np.arange(64 * 64).reshape(64, 64) % 4096).astype(np.uint16)).save(held, "PNG")
    message = refusal(conversion.decode_image, held.getvalue(), "a/0.png", 1, image_codec)
    assert message.startswith("a/0.png: has 16 bits per channel, of which only the upper 8 would be used")


@pytest.mark.case("folder-ipynb-checkpoints", source="open-mmlab/mmpretrain #507; keras-team/keras #14042",
                  right="[0, 0, 1, 1]")  # fmt: skip
@pytest.mark.parametrize("extra", [".ipynb_checkpoints", "__MACOSX", "@eaDir", "lost+found"])
def test_hidden_folders_are_no_classes(tmp_path, extra):
    for name in ("normal", "tumour", extra, f"normal/{extra}"):
        for number in range(2):
            image(tmp_path / name / f"{number}.jpg")
    for name in ("normal/Thumbs.db", "normal/._0.jpg", "normal/.DS_Store", "desktop.ini"):
        image(tmp_path / name, b"no image")
    source = Source("folder", str(tmp_path))
    assert labels("folder", tmp_path) == [0, 0, 1, 1]
    assert source.class_names() == ["normal", "tumour"]


@pytest.mark.case("class-folder-empty", source="our own", right="refused: the class's folder")
def test_a_class_without_images(tmp_path):
    image(tmp_path / "a" / "0.jpg")
    (tmp_path / "b").mkdir()
    assert refusal(labels, "folder", tmp_path).startswith(f"{tmp_path / 'b'}: the folder of this class has no images")


@pytest.mark.case("images-in-deeper-folders", source="our own", right="2 images of class a, 1 of b")
def test_images_in_deeper_folders_and_beside_the_classes(tmp_path):
    for name in ("a/0.jpg", "a/patient 7/0.jpg", "b/0.jpg"):
        image(tmp_path / name)
    assert labels("folder", tmp_path) == [0, 0, 1]
    stray = image(tmp_path / "1.jpg")
    assert refusal(labels, "folder", tmp_path).startswith(f"{stray}: is in no class's folder")


@pytest.mark.case("path-with-brackets", source="huggingface/datasets #7468; ultralytics #24257; ilastik #2391",
                  right="read: the path exists")  # fmt: skip
def test_brackets_in_the_names_of_folders(tmp_path):
    base = tmp_path / "scans [batch 2]"
    for name in "ab":
        image(base / "train" / name / "0.jpg")
    records(base / "train.tfrecord", (1,))
    records(base / "more [1]" / "x-1.tfrecord", (2,))
    found = labels("folder", base / "train"), labels("tfrecord", base / "train.tfrecord")
    assert found == ([0, 1], [0])
    assert labels("tfrecord", base / "train*.tfrecord") == [0], "a pattern below it"
    assert labels("tfrecord", base / "more*" / "x-?.tfrecord") == [1]


def damaged(kind, good):
    half = len(good) // 2
    return {
        "truncated": good[:half],
        "bytes lost": good[:half] + good[half + 400 :],
        "second half zero": good[:half] + bytes(len(good) - half),
        "second half zero with end": good[:half] + bytes(len(good) - half - 2) + good[-2:],
        "second half of one byte": good[:half] + b" " * (len(good) - half - 2) + good[-2:],
        "cut and ended": good[:half] + good[-2:],
        "no end": good[:-2],
    }[kind]


@pytest.mark.case("jpeg-damaged-scan", source="tensorflow/datasets #2188; image-rs/jpeg-decoder #169", right="refused")
@pytest.mark.parametrize("kind", ["truncated", "bytes lost", "second half zero", "second half zero with end",
                                  "second half of one byte", "cut and ended", "no end"])  # fmt: skip
@pytest.mark.parametrize("how", [{}, {"progressive": True}, {"optimize": True}, {"restart_marker_blocks": 4}], ids=str)
def test_jpegs_that_lost_a_part_of_the_picture(kind, how):
    message = refusal(conversion.decode_image, damaged(kind, jpeg(**how)), "a/0.jpg", 3, image_codec)
    assert message.startswith("a/0.jpg: cannot be decoded")


@pytest.mark.case("jpeg-garbage-after-end", source="tensorflow/datasets #2188", right="read: the same pixels")
@pytest.mark.parametrize("progressive", [False, True])
def test_what_follows_the_picture_is_harmless(progressive):
    good = jpeg(progressive=progressive)
    expected = conversion.decode_image(good, "x", 3, image_codec).numpy()
    for content in (
        good + bytes(50),
        good + good[:200],
        good[:-2] + bytes(99) + good[-2:],
        good[:-2] + b"\0" + good[-2:],
    ):
        assert np.array_equal(conversion.decode_image(content, "x", 3, image_codec).numpy(), expected)


@pytest.mark.case("png-without-end", source="our own", right="refused; a damaged comment is harmless")
def test_damaged_png():
    good = image_codec.encode_png(DRAWN)
    end = good.index(b"IEND") - 4
    flipped = bytearray(good)
    flipped[end - 6] ^= 1
    for content in (good[:end], good[: end - 9], bytes(flipped)):
        assert "cannot be decoded" in refusal(conversion.decode_image, content, "x", 3, image_codec)
    comment = struct.pack(">I4s", 3, b"tEXt") + b"abc" + b"\0\0\0\0"
    assert np.array_equal(conversion.decode_image(good[:end] + comment + good[end:] + b"x", "x", 3, image_codec), DRAWN)


@pytest.mark.case("jpeg-cmyk", source="nothings/stb PR #427; pytorch/vision #6538", right="colours as PIL has them")
def test_jpeg_in_cmyk():
    held = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 40, 90)).convert("CMYK").save(held, "JPEG", quality=95)
    found = np.asarray(conversion.decode_image(held.getvalue(), "x", 3, image_codec))[8, 8].astype(int)
    expected = np.array(Image.open(io.BytesIO(held.getvalue())).convert("RGB").getpixel((8, 8)))
    assert np.abs(found - expected).max() <= 6
    assert "neither JPEG nor PNG" in refusal(
        conversion.decode_image, gzip.compress(held.getvalue()), "x", 3, image_codec
    )


@pytest.mark.case("png-palette-to-grey", source="tensorflow/tensorflow #28256, #55550", right="PIL's luminance")
def test_palette_png_as_grey():
    held, grey = io.BytesIO(), Image.fromarray(DRAWN).quantize(16)
    grey.save(held, "PNG")
    found = np.asarray(conversion.decode_image(held.getvalue(), "x", 1, image_codec))[..., 0].astype(int)
    expected = np.asarray(grey.convert("RGB").convert("L")).astype(int)
    assert np.abs(found - expected).max() <= 1


@pytest.mark.case("jpeg-exif-orientation", source="tensorflow/tensorflow #33932", right="stored pixels, documented")
def test_exif_orientation_is_not_applied():
    exif = Image.Exif()
    exif[0x0112] = 6
    found = conversion.decode_image(jpeg(DRAWN[:16, :32], exif=exif), "x", 3, image_codec).shape
    assert found == (16, 32, 3)


def idx(magic, array):
    return struct.pack(f">I{array.ndim}I", magic, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.mark.case("emnist-letters", source="pytorch/vision PR #2673; facebookresearch/qmnist #1", right="0 to 25")
def test_labels_of_mnist_s_files_that_begin_with_one(tmp_path):
    pixels = np.arange(26 * 16, dtype=np.uint8).reshape(26, 4, 4)
    images = tmp_path / "emnist-letters-train-images-idx3-ubyte.gz"
    images.write_bytes(gzip.compress(idx(0x803, pixels)))
    letters = gzip.compress(idx(0x801, np.arange(1, 27)))
    (tmp_path / "emnist-letters-train-labels-idx1-ubyte.gz").write_bytes(letters)
    assert labels("mnist", images, 1) == list(range(26))
    assert labels("mnist", images) == list(range(1, 27))


def qmnist(folder, classes, columns=8, cut=0):
    """QMNIST's two files, with its names: eight integers for each image, the class and then others."""
    images = folder / "qmnist-train-images-idx3-ubyte.gz"
    images.write_bytes(gzip.compress(idx(0x803, np.zeros((len(classes), 4, 4)))))
    rows = [[label, *range(1000, 999 + columns)] for label in classes]
    content = struct.pack(">III", 0xC02, len(rows), columns) + np.array(rows, ">i4").tobytes()
    (folder / "qmnist-train-labels-idx2-int.gz").write_bytes(gzip.compress(content[: len(content) - cut]))
    return images


@pytest.mark.case("qmnist-names", source="facebookresearch/qmnist #1; pytorch/vision datasets/mnist.py", right="7 0 9")
def test_qmnist_s_files_by_their_own_names(tmp_path):
    """The labels' file is another kind of idx file under another name; its state is part of the dataset's."""
    images = qmnist(tmp_path, [7, 0, 9])
    found = labels("mnist", images)
    assert found == [7, 0, 9]
    assert labels("mnist", images, 0) == [7, 0, 9]
    own = tmp_path / "qmnist-train-labels-idx2-int.gz"
    assert Source("mnist", str(images)).read_files == [str(images), str(own)]
    (tmp_path / "qmnist-train-labels-idx1-ubyte.gz").write_bytes(idx(0x801, np.array([1, 2, 3])))
    assert labels("mnist", images) == [1, 2, 3], "the file with the images' own kind of name comes first"


@pytest.mark.case("qmnist-damaged", source="our own", right="refused: record 1; 7 numbers; bytes; no labels; 2 images")
def test_qmnist_s_labels_that_are_not_whole(tmp_path):
    images = qmnist(tmp_path, [7, 0, 9], cut=40)
    own = tmp_path / "qmnist-train-labels-idx2-int.gz"
    found = [refusal(labels, "mnist", images)]
    qmnist(tmp_path, [7, 0], columns=7)
    found.append(refusal(labels, "mnist", images))
    own.write_bytes(idx(0x801, np.array([7, 0])))
    found.append(refusal(labels, "mnist", images))
    own.unlink()
    found.append(refusal(labels, "mnist", images))
    qmnist(tmp_path, [7, 0])
    images.write_bytes(idx(0x803, np.zeros((3, 4, 4))))
    found.append(refusal(labels, "mnist", images))
    assert "labels-idx2-int.gz: record 1: the file has 68 bytes, not 108; restore it" in found[0]
    assert "has 7 numbers for each image; QMNIST's labels have 8" in found[1]
    assert "is no idx file of integers in 2 dimensions, it does not begin with 3074" in found[2]
    assert "there is no file of its labels, qmnist-train-labels-idx1-ubyte.gz, beside it" in found[3]
    assert "has 3 images, but qmnist-train-labels-idx2-int.gz has 2 labels" in found[4]


def opened(tmp_path, layout, classes=3):
    """Open the images ``train`` and ``test`` of a layout, converted, as a rank does."""
    from study import workloads
    from study.core import configuration

    spec, paths = configuration.load_named("benchmarks", "lenet"), {}
    for file in ("train", "test"):
        paths[file] = {"path": str(tmp_path / f"{file}.memory"), "sidecar": str(tmp_path / f"{file}.memory.json")}
        source = Source(layout, str(tmp_path / file))
        conversion.convert(source, "memory", *paths[file].values(), Options(classes, 3, 8), image_codec)
    model = {**spec["model"], "classes": classes, "image_size": 8, "resize": 8}
    return workloads.load_workload("lenet", {**spec, "model": model}).open(paths, "memory", 1)


@pytest.mark.case("test-class-without-training-images", source="our own", right="refused: class 2")
def test_a_class_of_the_test_images_that_no_training_image_has(tmp_path):
    records(tmp_path / "train", (1, 2))
    records(tmp_path / "test", (1, 3))
    message = refusal(opened, tmp_path, "tfrecord")
    assert "test.memory: 1 classes have no sample in" in message
    assert "('2')" in message
    records(tmp_path / "train", (1, 2, 3))
    assert len(opened(tmp_path, "tfrecord")["train"]) == 3


@pytest.mark.case("class-names-nfc-nfd", source="our own", right="refused: Unicode forms")
def test_names_of_classes_in_two_forms_of_unicode(tmp_path):
    for file, form in (("train", "NFC"), ("test", "NFD")):
        for name in ("caf\u00e9", "th\u00e9"):
            image(tmp_path / file / unicodedata.normalize(form, name) / "0.jpg")
    message = refusal(opened, tmp_path, "folder", 2)
    assert message.endswith("with accented letters written alike in Unicode (NFC or NFD)")


@pytest.mark.case("future-data-file", source="snakemake/snakemake#3254, #3261", right="refused: touch FILE")
def test_a_file_whose_time_is_in_the_future(tmp_path):
    path = tmp_path / "my train.csv"
    path.write_text("1,2\n")
    now = path.stat().st_mtime
    os.utime(path, (now + 1200, now + 1200))
    message = refusal(plan.check_times, [path], now)
    assert "1,200 s in the future" in message
    assert message.endswith(f"touch '{path}'")
    os.utime(path, (now, now))
    plan.check_times([path, tmp_path / "missing"], now)
