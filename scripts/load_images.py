"""Read all images of a converted folder, then read and decode them; print both times, memory and a CRC-32 as JSON."""

import argparse
import json
import os

from study.backends.tensorflow import image_timing
from study.core.errors import exit_with_message
from study.data.images.formats import FORMATS


def main() -> None:
    """Read the command line and do it."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's notes on its own build
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loader", choices=list(FORMATS))
    parser.add_argument("folder", help="the converted folder; its sidecar is beside it")
    parser.add_argument("page_cache", choices=["warm", "cold"])
    parser.add_argument("model", type=json.loads, help="channels, classes and resize, as JSON")
    arguments = parser.parse_args()
    print(json.dumps(image_timing.measure(arguments.loader, arguments.folder, arguments.page_cache, arguments.model)))


if __name__ == "__main__":
    exit_with_message(main)
