"""Convert one file of an image dataset into the format from which runs read it, with a sidecar."""

import argparse
import json
import os

from study import backends
from study.core.errors import exit_with_message
from study.data.images.conversion import Options, convert
from study.data.images.formats import FORMATS
from study.data.images.layouts import Source


def main() -> None:
    """Read the command line and do it."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's notes on its own build
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", required=True, type=json.loads, help="layout, path, first label and token, as JSON")
    parser.add_argument("--format", required=True, choices=list(FORMATS))
    parser.add_argument("--folder", required=True, help="the folder to write")
    parser.add_argument("--sidecar", required=True, help="the .json file to write")
    parser.add_argument("--images", required=True, type=json.loads, help="options and number of images, as JSON")
    arguments = parser.parse_args()
    options = Options(**arguments.images["options"])
    token = arguments.source.pop("token", None)
    source = Source.of(arguments.source)
    codec, samples = backends.image_codec(), arguments.images["samples"]
    convert(source, arguments.format, arguments.folder, arguments.sidecar, options, codec, samples, token)


if __name__ == "__main__":
    exit_with_message(main)
