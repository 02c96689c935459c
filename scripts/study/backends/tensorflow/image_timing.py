"""The time to read all images of a folder, to read and decode them, and of the decoder alone; with one thread."""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from study.backends.tensorflow import image_codec
from study.backends.tensorflow.images import extract_encoded as encoded_in
from study.backends.tensorflow.images import make_pixel_reader
from study.backends.tensorflow.input import make_pipeline
from study.core.errors import StudyError
from study.data import page_cache
from study.data.images.formats import Format, open_format
from study.data.images.source import Images, Reader, Shape
from study.data.loaders import read_sidecar
from study.instruments.counters import read_peak_memory_mb

BATCH = 128  # images; the batch size of han2019


def measure_loading(loader: str, folder: str | Path, cache: str, model: Mapping[str, Any]) -> dict[str, Any]:
    """Measure seconds to read, to read and decode, and of the decoder alone; peak memory (MB); CRC-32 of the pixels.

    The decoder alone (``decoder_s``) is libjpeg in TensorFlow, of images in memory, without scaling; None of pixels.

    Args:
        loader: the format.
        folder: the converted folder; its sidecar is the same with ``.json``.
        cache: warm or cold: the state of the page cache before each of the two.
        model: channels, classes, resize.

    Raises:
        StudyError: the folder is not as converted, or its pages cannot be dropped.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.set_visible_devices([], "GPU")
    samples = read_sidecar(f"{folder}.json")["shape"][0]
    shape = Shape(model["resize"], model["resize"], model["channels"], model["classes"])
    images = Images(Reader(open_format(loader, folder, samples, model["classes"])), shape)
    imported = read_peak_memory_mb()
    _prepare_page_cache(images.reader.images, cache)
    begun = time.perf_counter()
    _read_all(images.reader.images, samples)
    read_s = time.perf_counter() - begun
    _prepare_page_cache(images.reader.images, cache)
    begun = time.perf_counter()
    images.load()
    loaded_s = time.perf_counter() - begun
    dataset = make_pipeline(tf.data.Dataset.range(samples).batch(BATCH), make_pixel_reader(images), threads=1)
    for _ in itertools.islice(dataset, 1):  # the graph is built
        pass
    _prepare_page_cache(images.reader.images, cache)
    begun, checksum = time.perf_counter(), 0
    for batch in dataset:
        checksum = zlib.crc32(batch.numpy().data, checksum)
    decode_s = time.perf_counter() - begun + loaded_s
    return {
        "load_s": read_s,
        "decode_s": decode_s,
        "decoder_s": None if images.reader.images.has_pixels else _time_decoder(images.reader.images, shape, samples),
        "peak_memory_mb": read_peak_memory_mb(),
        "imported_memory_mb": imported,
        "crc32": checksum,
    }


def _read_all(images: Format, samples: int) -> None:
    """Read all stored bytes in the order of the file."""
    if images.has_pixels:
        images.pixels()
        return
    for first in range(0, samples, BATCH):
        images.read(np.arange(first, min(first + BATCH, samples)))


def _time_decoder(images: Format, shape: Shape, samples: int) -> float:
    """Seconds in which the decoder decodes all images from memory, batch by batch."""
    import tensorflow as tf

    seconds, decode_all = 0.0, _make_decoder(shape.channels)
    for first in range(0, samples, BATCH):
        stored = images.read(np.arange(first, min(first + BATCH, samples)))
        encoded = encoded_in(images, tf.constant(list(stored), tf.string))
        if not first:  # the graph is built
            decode_all(encoded)
        begun = time.perf_counter()
        decode_all(encoded)
        seconds += time.perf_counter() - begun
    return seconds


def _make_decoder(channels: int) -> Any:
    """Make a function that decodes batches of encoded images of any size, with one graph for all sizes."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)])
    def decode_all(encoded: Any) -> Any:
        return tf.map_fn(
            lambda content: tf.size(image_codec.decode_tensor(content, channels)),
            encoded,
            fn_output_signature=tf.int32,
            parallel_iterations=1,
        )

    return decode_all


def _prepare_page_cache(images: Format, cache: str) -> None:
    """Bring the folder's files into the page cache, or drop them from it. cache: warm or cold."""
    images.close()
    for path in page_cache.list_files(images.folder):
        if cache == "warm":
            page_cache.warm_file(path)
        elif reason := page_cache.drop_file(path):
            raise StudyError(reason)
