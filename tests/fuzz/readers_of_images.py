"""Images in the layouts of users: what is read is what stands in the file, or the file is refused with its record."""

import gzip
import struct

import damage
import hypothesis.strategies as st
import numpy as np
from readers import Reader, reader

from study.backends.tensorflow import image_codec
from study.core.errors import StudyError
from study.data.images import conversion
from study.data.images.layouts import CIFAR_SIDE, IDX_IMAGES, IDX_LABELS, Source

PIXELS = np.random.default_rng(7).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
LABELS = [2, 0, 1, 1, 0]


class Layout(Reader):
    """A layout of images; ``layout`` is its name."""

    layout = ""
    is_slow = True

    def read(self, path):
        images = []
        for image in Source(self.layout, str(self.locate_source(path))).images(image_codec):
            pixels = conversion.decode_image(image.content, image.where, 3, image_codec)
            if not 0 <= image.label < 10:
                raise StudyError(f"{image.where}: its class is {image.label}")  # as a conversion says
            images.append([image.label, image_codec.fit_square(pixels, 8).numpy().tobytes().hex()])
        if not images:
            raise StudyError(f"{self.locate_source(path)}: has 0 images")  # likewise
        return images

    def locate_source(self, path):
        return path


@reader("images in a user's TFRecords", "tfrecord")
class UserRecords(Layout):
    layout = "tfrecord"

    def prepare(self, folder):
        self.path = folder / "user.tfrecord"
        self.pngs = [image_codec.encode_png(pixels) for pixels in PIXELS]
        self.write([self.make_record([png], [label + 1]) for png, label in zip(self.pngs, LABELS, strict=True)])
        return self.path

    def make_record(self, contents, labels):
        """A record of ImageNet's features; labels count from 1."""
        import tensorflow as tf

        words = [each for each in labels if isinstance(each, bytes)]
        label = {"bytes_list": tf.train.BytesList(value=words)} if words else {
            "int64_list": tf.train.Int64List(value=labels)}  # fmt: skip
        feature = {"image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=contents)),
                   "image/class/label": tf.train.Feature(**label)}  # fmt: skip
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    def write(self, records):
        """Write the file, and return its bytes."""
        import tensorflow as tf

        with tf.io.TFRecordWriter(str(self.path)) as writer:
            for each in records:
                writer.write(each)
        return self.path.read_bytes()

    def damage(self, content):
        good, png = self.make_record([self.pngs[0]], [1]), self.pngs[0]
        odd = [([png], []), ([], [1]), ([png, png], [1]), ([png], [1, 2]), ([png], [0]), ([png], [-5]),
               ([png], [2**62]), ([b""], [1]), ([png[:-20]], [1]), ([b"GIF89a"], [1]), ([png], [b"7"]),
               ([image_codec.encode_jpeg(PIXELS[0], 90)[:-30]], [1])]  # fmt: skip
        records = [*(self.make_record(*each) for each in odd), good[:-1], good + b"\0", b"", b"x" * 40]
        return st.sampled_from(records).map(lambda each: self.write([good, each])) | damage.cut(content)

    def expect(self, path):
        import tensorflow as tf

        return [
            [
                example["image/class/label"].int64_list.value[0] - 1,
                image_codec.fit_square(
                    image_codec.decode_tensor(example["image/encoded"].bytes_list.value[0], 3), 8
                ).numpy().tobytes().hex(),
            ]
            for each in tf.data.TFRecordDataset(str(path))
            for example in [tf.train.Example.FromString(each.numpy()).features.feature]
        ]  # fmt: skip


@reader("MNIST's images", "gz", file="train-images-idx3-ubyte.gz")
@reader("MNIST's labels", "gz", file="train-labels-idx1-ubyte.gz")
class Idx(Layout):
    layout = "mnist"
    images = "train-images-idx3-ubyte.gz"

    def prepare(self, folder):
        pixels = struct.pack(">IIII", IDX_IMAGES, 5, 8, 8) + PIXELS[..., 0].tobytes()
        labels = struct.pack(">II", IDX_LABELS, 5) + bytes(LABELS)
        for name, content in ((self.images, pixels), ("train-labels-idx1-ubyte.gz", labels)):
            (folder / name).write_bytes(gzip.compress(content))
        return folder / self.file

    def locate_source(self, path):
        return path.with_name(self.images)

    def damage(self, content):
        sizes = [struct.pack(">I", size) for size in (0, 1, 4, 6, 2**16, 2**31, 2**32 - 1)]
        return damage.gz_files(content, lambda plain: st.builds(
            lambda place, size: plain[:place] + size + plain[place + 4 :], st.sampled_from([0, 4, 8, 12]),
            st.sampled_from(sizes)) | damage.cut(plain))  # fmt: skip

    def names(self, path):
        return "train-images", "train-labels"

    def expect(self, path):
        import tensorflow as tf

        raw = path.with_name(self.images).read_bytes()
        plain = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        number, height, width = struct.unpack(">III", plain[4:16])
        pixels = np.frombuffer(plain[16:], np.uint8).reshape(number, height, width, 1).repeat(3, axis=-1)
        raw = path.with_name("train-labels-idx1-ubyte.gz").read_bytes()
        labels = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)[8:]
        shaped = [tf.ensure_shape(tf.convert_to_tensor(each), (None, None, 3)) for each in pixels]
        squares = [image_codec.fit_square(each, 8).numpy().tobytes().hex() for each in shaped]
        return [[labels[n], square] for n, square in enumerate(squares)]


@reader("CIFAR-10's file", "image")
class Cifar(Layout):
    layout = "cifar10"

    def prepare(self, folder):
        path = folder / "data_batch_1.bin"
        path.write_bytes(b"".join(bytes([label]) + bytes(range(256)) * (3 * CIFAR_SIDE**2 // 256) for label in (3, 7)))
        return path

    def damage(self, content):
        return damage.cut(content, (*damage.BYTES, content[:3073]))


@reader("an image in a folder", "image")
class FolderImage(Layout):
    layout = "folder"

    def prepare(self, folder):
        for name in ("a", "b"):
            (folder / "images" / name).mkdir(parents=True)
            (folder / "images" / name / "1.jpg").write_bytes(image_codec.encode_jpeg(PIXELS[0], 90))
        return folder / "images" / "a" / "1.jpg"

    def locate_source(self, path):
        return path.parents[1]

    def damage(self, content):
        png = image_codec.encode_png(PIXELS[1])
        whole = [png, png[:-10], b"", b"GIF89a", content + b"x" * 50,
                 png[:16] + struct.pack(">II", 2**30, 2**30) + png[24:]]  # fmt: skip
        return st.one_of(damage.cut(content), damage.cut(png), st.sampled_from(whole))

    def names(self, path):
        return "1.jpg", "images"
