"""Images in the layouts of users."""

import gzip
import struct
import tempfile

import damage
import hypothesis.strategies as st
import numpy as np
from readers import NOTHING_TO_COMPARE, reader
from readers import Reader as Entry

from study.backends.tensorflow import image_codec
from study.core.errors import StudyError
from study.data.images import conversion
from study.data.images.layouts import CIFAR_SIDE, IDX_IMAGES, IDX_LABELS, Source

PIXELS = np.random.default_rng(7).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
LABELS = [2, 0, 1, 1, 0]


def write_records(records):
    """The bytes of a TFRecord file."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        with tf.io.TFRecordWriter(f"{folder}/x") as writer:
            for each in records:
                writer.write(each)
        with open(f"{folder}/x", "rb") as handle:
            return handle.read()


def example(content, label, **more):
    """A record of ImageNet's features; the label counts from 1."""
    import tensorflow as tf

    feature = {}
    if content is not None:
        feature["image/encoded"] = tf.train.Feature(bytes_list=tf.train.BytesList(value=content))
    if label is not None:
        feature["image/class/label"] = tf.train.Feature(int64_list=tf.train.Int64List(value=label))
    return tf.train.Example(features=tf.train.Features(feature={**feature, **more})).SerializeToString()


class Layout(Entry):
    """A user's images: each is what stands in the file, or the file is refused with its record."""

    layout = ""

    def read(self, path):
        found = []
        for image in Source(self.layout, str(self.source(path))).images(image_codec):
            pixels = conversion.decode_image(image.content, image.where, 3, image_codec)
            if not 0 <= image.label < 10:
                raise StudyError(f"{image.where}: its class is {image.label}")  # as a conversion says
            found.append([image.label, image_codec.fit_square(pixels, 8).numpy().tobytes().hex()[:64]])
        if not found:
            raise StudyError(f"{self.source(path)}: has 0 images")  # likewise
        return found

    def source(self, path):
        return path


@reader("images in a user's TFRecords", "tfrecord", slow=True)
class UserRecords(Layout):
    layout = "tfrecord"

    def prepare(self, folder):
        path = folder / "user.tfrecord"
        own = [
            example([image_codec.encode_png(pixels)], [label + 1]) for pixels, label in zip(PIXELS, LABELS, strict=True)
        ]
        path.write_bytes(write_records(own))
        return path

    def damage(self, content):
        import tensorflow as tf

        png = image_codec.encode_png(PIXELS[0])
        text = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"7"]))
        others = [
            example([png], None),
            example(None, [1]),
            example([png, png], [1]),
            example([png], [1, 2]),
            example([png], [0]),
            example([png], [-5]),
            example([png], [2**62]),
            example([b""], [1]),
            example([png[:-20]], [1]),
            example([image_codec.encode_jpeg(PIXELS[0], 90)[:-30]], [1]),
            example([b"GIF89a"], [1]),
            example([png], None, **{"image/class/label": text}),
            example([], []),
        ]
        return damage.tfrecord_files(content, write_records, others)

    def expect(self, path):
        import tensorflow as tf

        found = []
        for record in damage.records_of(path.read_bytes()):
            feature = tf.train.Example.FromString(record).features.feature
            (content,), (label,) = (
                feature["image/encoded"].bytes_list.value,
                feature["image/class/label"].int64_list.value,
            )
            found.append(
                [
                    label - 1,
                    image_codec.fit_square(image_codec.decode_tensor(content, 3), 8).numpy().tobytes().hex()[:64],
                ]
            )
        return found


@reader("images in a user's TFRecords that gzip compressed", "tfrecord", slow=True)
class GzipRecords(UserRecords):
    def prepare(self, folder):
        path = super().prepare(folder)
        self.plain = path.read_bytes()
        path.write_bytes(gzip.compress(self.plain))
        return path

    def damage(self, content):
        inside = super().damage(self.plain).map(gzip.compress)
        return st.one_of(inside, inside, damage.cut(content, (b"\0", b"\xff")), damage.gz_files(content))

    def expect(self, path):
        content = path.read_bytes()
        plain = path.with_name("plain.tfrecord")
        plain.write_bytes(gzip.decompress(content) if content[:1] == b"\x1f" else content)
        return super().expect(plain)


class Idx(Layout):
    """MNIST's files."""

    layout = "mnist"
    file = "train-images-idx3-ubyte"

    def prepare(self, folder):
        images = struct.pack(">IIII", IDX_IMAGES, 5, 8, 8) + PIXELS[..., 0].tobytes()
        labels = struct.pack(">II", IDX_LABELS, 5) + bytes(LABELS)
        for name, content in (("images-idx3", images), ("labels-idx1", labels)):
            (folder / f"train-{name}-ubyte.gz").write_bytes(gzip.compress(content))
        return folder / f"{self.file}.gz"

    def source(self, path):
        return path.with_name("train-images-idx3-ubyte.gz")

    def damage(self, content):
        return damage.gz_files(content, self.inside)

    @staticmethod
    def inside(plain):
        numbers = st.sampled_from([0, 1, 4, 6, 2**16, 2**31, 2**32 - 1])

        @st.composite
        def shapes(draw):
            at = draw(st.sampled_from([0, 4, 8, 12]))
            return plain[:at] + struct.pack(">I", draw(numbers)) + plain[at + 4 :]

        return st.one_of(shapes(), damage.cut(plain, (b"\0", b"\xff")))

    def names(self, path):
        return "train-images", "train-labels"

    def expect(self, path):
        content = {}
        for name in ("images-idx3", "labels-idx1"):
            raw = path.with_name(f"train-{name}-ubyte.gz").read_bytes()
            content[name] = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        number, height, width = struct.unpack(">III", content["images-idx3"][4:16])
        pixels = (
            np.frombuffer(content["images-idx3"][16:], np.uint8).reshape(number, height, width, 1).repeat(3, axis=-1)
        )
        labels = content["labels-idx1"][8:]
        return [
            [
                labels[n],
                image_codec.fit_square(_tensor(pixels[n]), 8).numpy().tobytes().hex()[:64],
            ]
            for n in range(number)
        ]


def _tensor(pixels):
    import tensorflow as tf

    return tf.ensure_shape(tf.convert_to_tensor(np.ascontiguousarray(pixels)), (None, None, 3))


@reader("MNIST's images", "gz", slow=True)
class IdxImages(Idx):
    pass


@reader("MNIST's labels", "gz", slow=True)
class IdxLabels(Idx):
    file = "train-labels-idx1-ubyte"


@reader("CIFAR-10's file", "image", slow=True)
class Cifar(Layout):
    layout = "cifar10"

    def prepare(self, folder):
        path = folder / "data_batch_1.bin"
        path.write_bytes(b"".join(bytes([label]) + bytes(range(256)) * (3 * CIFAR_SIDE**2 // 256) for label in (3, 7)))
        return path

    def damage(self, content):
        return damage.cut(content, (b"\0", b"\xff", content[:3073]))

    def expect(self, path):
        return NOTHING_TO_COMPARE


@reader("an image in a folder", "image", slow=True)
class FolderImage(Layout):
    layout = "folder"

    def prepare(self, folder):
        for name in ("a", "b"):
            (folder / "images" / name).mkdir(parents=True)
            (folder / "images" / name / "1.jpg").write_bytes(image_codec.encode_jpeg(PIXELS[0], 90))
        return folder / "images" / "a" / "1.jpg"

    def source(self, path):
        return path.parents[1]

    def damage(self, content):
        png = image_codec.encode_png(PIXELS[1])
        whole = [
            png,
            png[:-10],
            b"",
            b"GIF89a",
            content + b"x" * 50,
            png[:16] + struct.pack(">II", 2**30, 2**30) + png[24:],
        ]
        return st.one_of(
            damage.cut(content, (b"\0", b"\xff\xd9", b"\xff")), damage.cut(png, (b"\0",)), st.sampled_from(whole)
        )

    def names(self, path):
        return "1.jpg", "images"
