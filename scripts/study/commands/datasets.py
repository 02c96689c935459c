"""The steps that make the files of a dataset: fetched or generated, converted, scaled."""

import os
from typing import Any

import click

from study.commands.options import COUNT, JSON, OneOf, step
from study.core.errors import StudyError


def _quieten_tensorflow() -> None:
    """Without notes on its own build; before it is imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@step("fetch_dataset")
@click.option("--benchmark", required=True)
@click.option("--file", required=True, help="one of the benchmark's files, by its name in the study")
@click.option("--definition", type=JSON, required=True, help="the study's dataset, as JSON")
@click.option("--study", help="whose dataset has the server and checksums; the address may have a secret")
@click.option("--dataset", help="its name in paths")
@click.option(
    "--checksum", required=True, help="where the checksum of the first download, or of the generated file, is kept"
)
@click.option("--output", required=True)
def fetch_dataset(
    benchmark: str, file: str, definition: dict[str, Any], study: str, dataset: str, checksum: str, output: str
) -> None:
    """Put one file of a dataset into the data folder: download it or generate it."""
    _quieten_tensorflow()
    from study import backends
    from study.core import configuration
    from study.data import download
    from study.experiment.expansion import load_planned_study
    from study.workloads import images, synthetic

    spec = configuration.load_named("benchmarks", benchmark)
    if definition["source"].startswith("synthetic"):
        spec = images.add_input_keys(spec, definition)
        codec = backends.get_image_codec() if definition["source"] == "synthetic_images" else None
        synthetic.generate_file(output, benchmark, spec, definition, file, checksum, codec)
    else:
        origin = load_planned_study(study).datasets[benchmark, dataset].origin
        place = f"{spec['url_path']}/{spec['files'][file]['name']}"
        download.fetch_published(output, place, origin, checksum, origin.get("checksums", {}).get(file, {}))


@step("copy_data")
@click.argument("source")
@click.argument("target")
def copy_data(source: str, target: str) -> None:
    """Copy a file of a dataset, or a folder of them, to a storage, and compare each copy with what was converted."""
    import shutil
    from pathlib import Path

    from study.core.files import copy_checked
    from study.data import file_changes

    origin, place = Path(source), Path(target)
    if origin.is_dir():
        aside = place.with_name(f"{place.name}.part")
        shutil.rmtree(aside, ignore_errors=True)
        for path in sorted(path for path in origin.rglob("*") if path.is_file()):
            copy = aside / path.relative_to(origin)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy_checked(path, copy)
        shutil.rmtree(place, ignore_errors=True)
        aside.rename(place)
        return
    checksum, sidecar = copy_checked(origin, place), origin.with_suffix(".json")
    is_converted = origin.suffix == ".npy" and "converted" in origin.parts and sidecar.exists()
    if is_converted and checksum != file_changes.find_recorded_checksum(origin, sidecar):
        place.unlink()
        raise StudyError(f"{origin}: was changed after its conversion; delete it to have it made again")


@step("convert_dataset")
@click.argument("source")
@click.option("--matrix", required=True, help="the .npy file to write")
@click.option("--sidecar", required=True, help="the .json file to write")
@click.option("--form", type=JSON, required=True, help="as in the benchmark's YAML, as JSON")
@click.option("--rows", type=COUNT, help="refuse a file with another number of rows")
@click.option("--columns", type=COUNT, help="refuse a file with another number of columns")
@click.option("--checksum", help="file with the SHA-256 that the table had when it was fetched, if there is one")
@click.option("--token", help="what tells this state of the file from the one before, for the sidecar")
def convert_dataset(
    source: str, matrix: str, sidecar: str, form: dict[str, Any], rows: int | None, columns: int | None,
    checksum: str | None, token: str | None,
) -> None:  # fmt: skip
    """Convert one text table of a dataset into a float32 matrix and its sidecar."""
    from study.data.conversion import convert
    from study.data.tabular import Form

    convert(source, matrix, sidecar, Form.from_spec(form), rows, columns, checksum, token)


@step("convert_images")
@click.option("--source", type=JSON, required=True, help="layout, path, first label and token, as JSON")
@click.option("--format", "format_name", type=OneOf("study.data.images.formats", "FORMATS"), required=True)
@click.option("--folder", required=True, help="the folder to write")
@click.option("--sidecar", required=True, help="the .json file to write")
@click.option("--images", type=JSON, required=True, help="options and number of images, as JSON")
def convert_images(source: dict[str, Any], format_name: str, folder: str, sidecar: str, images: dict[str, Any]) -> None:
    """Convert one file of an image dataset into the format from which runs read it, with a sidecar."""
    _quieten_tensorflow()
    from study import backends
    from study.data.images.conversion import Options, convert
    from study.data.images.layouts import Source

    token, options = source.pop("token", None), Options(**images["options"])
    codec = backends.get_image_codec()
    convert(Source.from_param(source), format_name, folder, sidecar, options, codec, images["samples"], token)


@step("fit_scalers")
@click.option("--benchmark", required=True)
@click.option("--files", type=JSON, required=True, help="{file: its converted matrix} as JSON")
@click.option("--output", required=True, help="the .npz file to write")
@click.option("--sidecar", required=True, help="the .json file to write, which names the converted files")
def fit_scalers(benchmark: str, files: dict[str, str], output: str, sidecar: str) -> None:
    """Fit a benchmark's scalers on its converted files and write their parameters."""
    from study import workloads
    from study.core import configuration
    from study.core.files import write_sealed
    from study.data import feature_scaling
    from study.data.loaders import map_matrix, read_sidecar
    from study.experiment import conversions, inputs
    from study.workloads.base import Table

    description = conversions.describe_scaling(inputs.locate_sidecars(files))
    tables = {
        file: Table(map_matrix(path), [code["values"] for code in read_sidecar(inputs.locate_sidecar(path))["codes"]])
        for file, path in files.items()
    }
    workload = workloads.load_workload(benchmark, configuration.load_named("benchmarks", benchmark))
    feature_scaling.save_scalers(workload.scalers(tables), output)
    write_sealed(sidecar, description)


@step("scale_file")
@click.argument("file")
@click.argument("matrix")
@click.argument("sidecar")
@click.option("--scalers", required=True, help="the .npz file of the step fit_scalers")
@click.option("--fitted-on", required=True, help="the .json file of the step fit_scalers")
@click.option("--output", required=True, help="the .npy file of the numbers to write")
@click.option("--codes", required=True, help="the .npy file of the columns of categories to write")
@click.option("--scaled-sidecar", required=True, help="the .json file to write, which names its converted files")
def scale_file(
    file: str, matrix: str, sidecar: str, scalers: str, fitted_on: str, output: str, codes: str, scaled_sidecar: str
) -> None:
    """Scale the numbers of one converted file for the loader ``mapped``, and store its categories separately.

    FILE is its name in the benchmark's YAML; MATRIX and SIDECAR are the converted file's.
    """
    from study.core.files import read_json, write_sealed
    from study.data import feature_scaling
    from study.data.loaders import map_matrix, read_sidecar

    description, fit = read_sidecar(sidecar), read_json(fitted_on)
    if fit["fitted_on"].get(file) != description["sha256"]:
        raise StudyError(f"{scalers}: fitted on other files; delete it, and Snakemake makes it again")
    columns, number_of_codes = map_matrix(matrix), len(description["codes"])
    feature_scaling.save_codes(columns[:, :number_of_codes], codes)
    feature_scaling.write_scaled(columns[:, number_of_codes:], feature_scaling.load_scaler(scalers, file), output)
    write_sealed(scaled_sidecar, fit)
