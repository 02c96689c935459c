"""Read all images of a converted folder, then read and decode them; print both times, memory and a CRC-32 as JSON.

load_images.py FORMAT FOLDER PAGE_CACHE MODEL

FOLDER: converted; its sidecar is beside it. PAGE_CACHE: warm or cold. MODEL: channels, classes and resize, as JSON.
"""

import json
import os
import sys

from study.backends.tensorflow import image_timing
from study.core.errors import exit_with_message


def main() -> None:
    """Read and decode the images and print times, memory and checksum."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's notes on its own build
    format_name, folder, page_cache, model = sys.argv[1:]
    print(json.dumps(image_timing.measure_loading(format_name, folder, page_cache, json.loads(model))))


if __name__ == "__main__":
    exit_with_message(main)
