"""Put one file of a dataset into the data folder: download it or generate it."""

import argparse
import json
import os

from study import backends
from study.core import configuration
from study.core.errors import exit_with_message
from study.data import download
from study.experiment.expansion import load_planned
from study.workloads import images, synthetic


def main() -> None:
    """Read the command line and do it."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's notes on its own build
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--benchmark", required=True)
    parser.add_argument("--file", required=True, help="one of the benchmark's files, by its name in the study")
    parser.add_argument("--definition", required=True, type=json.loads, help="the study's dataset, as JSON")
    parser.add_argument("--study", help="whose dataset has the server and checksums; the address may have a secret")
    parser.add_argument("--dataset", help="its name in paths")
    parser.add_argument(
        "--checksum",
        required=True,
        help="where the checksum of the first download is kept, or that of the generated file",
    )
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()
    spec = configuration.load_named("benchmarks", arguments.benchmark)
    if arguments.definition["source"].startswith("synthetic"):
        spec = images.with_input(spec, arguments.definition)
        synthetic.generate(
            arguments.output,
            arguments.benchmark,
            spec,
            arguments.definition,
            arguments.file,
            arguments.checksum,
            backends.image_codec() if arguments.definition["source"] == "synthetic_images" else None,
        )
    else:
        origin = load_planned(arguments.study).datasets[arguments.benchmark, arguments.dataset].origin
        place = f"{spec['url_path']}/{spec['files'][arguments.file]['name']}"
        expected = origin.get("checksums", {}).get(arguments.file, {})
        download.fetch_published(arguments.output, place, origin, arguments.checksum, expected)


if __name__ == "__main__":
    exit_with_message(main)
