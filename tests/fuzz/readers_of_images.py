"""Images: users' layouts, the converted formats, their index and sidecar."""

import gzip
import json
import struct
import zlib

import damage
import hypothesis.strategies as st
import numpy as np
from readers import NOTHING_TO_COMPARE, reader
from readers import Reader as Entry
from readers_of_data import _write_records, lmdb_files

from study.backends.tensorflow import image_codec
from study.backends.tensorflow.images import encoded
from study.backends.tensorflow.input import reading_errors
from study.core.errors import StudyError
from study.core.files import read_json  # noqa: F401
from study.data.images import conversion, formats
from study.data.images.layouts import CIFAR_SIDE, IDX_IMAGES, IDX_LABELS, Source
from study.data.images.source import Images, Reader, Shape
from study.data.loaders import read_sidecar

OPTIONS = conversion.Options(classes=3, channels=3, side=8)
PIXELS = np.random.default_rng(7).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
LABELS = [2, 0, 1, 1, 0]


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
            pixels = conversion.decoded(image.content, image.where, 3, image_codec)
            if not 0 <= image.label < 10:
                raise StudyError(f"{image.where}: its class is {image.label}")  # as a conversion says
            found.append([image.label, image_codec.fit(pixels, 8).numpy().tobytes().hex()[:64]])
        if not found:
            raise StudyError(f"{self.source(path)}: has 0 images")  # likewise
        return found

    def source(self, path):
        return path


@reader(
    "images in a user's TFRecords",
    "tfrecord",
    "study.backends.tensorflow.image_codec:records",
    "study.backends.tensorflow.image_codec:features",
    slow=True,
)
class UserRecords(Layout):
    layout = "tfrecord"

    def prepare(self, folder):
        path = folder / "user.tfrecord"
        own = [
            example([image_codec.encode_png(pixels)], [label + 1]) for pixels, label in zip(PIXELS, LABELS, strict=True)
        ]
        path.write_bytes(_write_records(own))
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
        return damage.tfrecord_files(content, _write_records, others)

    def expect(self, path):
        import tensorflow as tf

        found = []
        for record in damage.records_of(path.read_bytes()):
            feature = tf.train.Example.FromString(record).features.feature
            (content,), (label,) = (
                feature["image/encoded"].bytes_list.value,
                feature["image/class/label"].int64_list.value,
            )
            found.append([label - 1, image_codec.fit(image_codec.decode(content, 3), 8).numpy().tobytes().hex()[:64]])
        return found


class CompressedRecords(UserRecords):
    """The same, compressed."""

    compress = decompress = None

    def prepare(self, folder):
        path = super().prepare(folder)
        self.plain = path.read_bytes()
        path.write_bytes(self.compress(self.plain))
        return path

    def damage(self, content):
        inside = super().damage(self.plain).map(self.compress)
        return st.one_of(inside, inside, damage.cut(content, (b"\0", b"\xff")), self.others(content))

    def others(self, content):
        return st.sampled_from([content[:-1], content[:-4], content[:20], content + b"x", content + content, b""])

    def expect(self, path):
        content = path.read_bytes()
        plain = path.with_name("plain.tfrecord")
        plain.write_bytes(self.decompress(content) if content[:1] == self.compress(b"")[:1] else content)
        return super().expect(plain)


@reader("images in a user's TFRecords that gzip compressed", "tfrecord", "study.data.text_file:opened", slow=True)
class GzipRecords(CompressedRecords):
    compress, decompress = staticmethod(gzip.compress), staticmethod(gzip.decompress)

    def others(self, content):
        return damage.gz_files(content)


@reader("images in a user's TFRecords that zlib compressed", "tfrecord", "study.data.text_file:_check_zlib", slow=True)
class ZlibRecords(CompressedRecords):
    compress, decompress = staticmethod(zlib.compress), staticmethod(zlib.decompress)


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
                image_codec.fit(_tensor(pixels[n]), 8).numpy().tobytes().hex()[:64],
            ]
            for n in range(number)
        ]


def _tensor(pixels):
    import tensorflow as tf

    return tf.ensure_shape(tf.convert_to_tensor(np.ascontiguousarray(pixels)), (None, None, 3))


@reader("MNIST's images", "gz", "study.data.images.layouts:_idx", slow=True)
class IdxImages(Idx):
    pass


@reader("MNIST's labels", "gz", "study.data.images.layouts:_idx", slow=True)
class IdxLabels(Idx):
    file = "train-labels-idx1-ubyte"


@reader("CIFAR-10's file", "image", "study.data.text_file:content", slow=True)
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


@reader(
    "an image in a folder",
    "image",
    "study.data.images.layouts:_folder",
    "study.backends.tensorflow.image_codec:decode",
    slow=True,
)
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


class ConvertedImages(Entry):
    """A converted folder: the stored bytes of each image are those that were written, or it is refused."""

    format, file = "", formats.INDEX

    def prepare(self, folder):
        source = folder / "user.tfrecord"
        self.contents = [image_codec.encode_png(pixels) for pixels in PIXELS]
        source.write_bytes(
            _write_records([example([c], [label + 1]) for c, label in zip(self.contents, LABELS, strict=True)])
        )
        self.folder = folder / "converted"
        conversion.convert(
            Source("tfrecord", str(source)), self.format, self.folder, folder / "converted.json", OPTIONS, image_codec
        )
        return folder / "converted.json" if self.file == "sidecar" else self.folder / self.file

    def read(self, path):
        samples = read_sidecar(f"{self.folder}.json")["shape"][0]
        images = formats.open_format(self.format, self.folder, samples, OPTIONS.classes)
        try:
            positions = np.arange(len(images.index["label"]))
            if images.has_pixels:
                stored = [each.tobytes().hex() for each in images.pixels()]
            else:
                source = Images(Reader(images), Shape(8, 8, 3, 3))
                with reading_errors(source):
                    encoded(images, source.reader.read(positions))
                stored = [bytes(each).hex() for each in np.asarray(encoded(images, images.read(positions)))]
            return [images.index["label"].tolist(), stored]
        finally:
            images.close()

    def names(self, path):
        return path.name, "converted"


class Index(ConvertedImages):
    """The index of a format."""

    def damage(self, content):
        return damage.npz_files(content)

    def expect(self, path):
        with np.load(path, allow_pickle=False) as arrays:
            labels = arrays["label"].tolist()
        whole = (
            [pixels.tobytes().hex() for pixels in PIXELS]
            if self.format == "memory"
            else [c.hex() for c in self.contents]
        )
        return [labels, whole]


for _format in formats.FORMATS:
    reader(f"the index of images in {_format}", "npz", "study.data.matrix_file:_array",
           slow=True)(type(_format, (Index,), {"format": _format}))  # fmt: skip


@reader("the sidecar of images", "json", "study.data.loaders:read_sidecar", slow=True)
class ImageSidecar(ConvertedImages):
    format, file = "jpeg_files", "sidecar"

    def damage(self, content):
        return damage.json_files(content)

    def expect(self, path):
        return [LABELS[: json.loads(path.read_text())["shape"][0]], [content.hex() for content in self.contents]]


@reader(
    "converted images in TFRecords",
    "tfrecord",
    "study.data.images.formats:TFRecords.record",
    "study.backends.tensorflow.image_codec:encoded",
    slow=True,
)
class ConvertedRecords(ConvertedImages):
    format, file = "tfrecord", "shard-00000.tfrecord"

    def damage(self, content):
        others = [example([self.contents[1]], [1]), example(None, [1]), example([b""], [1])]
        return damage.tfrecord_files(content, _write_records, others)

    def expect(self, path):
        import tensorflow as tf
        from google.protobuf.message import DecodeError

        try:
            stored = [tf.train.Example.FromString(record).features.feature["image/encoded"].bytes_list.value[0].hex()
                      for record in damage.records_of(path.read_bytes())]  # fmt: skip
        except DecodeError:  # in Python it also refuses a record whose label has a name that is not UTF-8
            return NOTHING_TO_COMPARE
        return [LABELS, stored]


@reader(
    "converted images in LMDB",
    "lmdb",
    "study.data.images.formats:_opened",
    slow=True,
)
class ConvertedLMDB(ConvertedImages):
    format, file = "lmdb", "images.lmdb"

    def damage(self, content):
        entries = [(b"%010d" % place, stored) for place, stored in enumerate(self.contents)]
        return lmdb_files(content, entries, [b"", b"x", self.contents[0] * 2])

    def expect(self, path):
        import lmdb

        with (
            lmdb.open(str(path), subdir=False, lock=False, readonly=True) as environment,
            environment.begin() as reading,
        ):
            return [LABELS, [reading.get(b"%010d" % place).hex() for place in range(len(LABELS))]]


@reader("a converted image in a file", "image", "study.data.images.formats:Files.record", slow=True)
class ConvertedFile(ConvertedImages):
    format, file = "jpeg_files", "00002/000000000.png"

    def damage(self, content):
        return damage.cut(content, (b"\0", b"\xff"))

    def expect(self, path):
        return [LABELS, [path.read_bytes().hex(), *(content.hex() for content in self.contents[1:])]]


@reader(
    "converted pixels",
    "image",
    "study.data.images.formats:Memory.pixels",
    "study.data.images.formats:Memory.record",
    slow=True,
)
class ConvertedPixels(ConvertedImages):
    format, file = "memory", "pixels.bin"

    def damage(self, content):
        return damage.cut(content, (b"\0", b"\xff"))

    def expect(self, path):
        pixels = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 8 * 8 * 3)
        return [LABELS, [each.tobytes().hex() for each in pixels]]
