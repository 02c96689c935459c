"""Runs of a small study."""

import copy

from study.data.conversion import convert
from study.data.tabular import Form
from study.experiment import expansion, inputs
from study.machines import machine
from study.workloads.synthetic import generate_file

STUDY = {
    "description": "a test",
    "datasets": {"nt3": {"source": "synthetic", "train_samples": 100, "test_samples": 20, "features": 60, "seed": 1}},
    "runs": [],
    "tables": ["scaling"],
}


def expand(**point):
    content, benchmark = copy.deepcopy(STUDY), point.get("benchmark", "nt3")
    small = content["datasets"].pop("nt3")
    content["datasets"][benchmark] = {"source": "url"} if point.pop("full_size", False) else small
    content["runs"] = [{"benchmark": "nt3", "scaling": "strong", "epochs": 4, "gpus": 2, "loader": "read_csv", **point}]
    return expansion.expand_study("test", content, "test.yaml").runs


def define(planned, on="local", data_dir="data"):
    """The definition of a planned run on a machine."""
    return inputs.define_run(planned, machine.load(on), data_dir)


def make_data(run, data_dir):
    """The synthetic files of a run, raw and converted."""
    for file, form in run.spec["files"].items():
        raw, matrix = run.dataset.locate_raw(data_dir, file), run.dataset.locate_converted(data_dir, file)
        generate_file(raw, run.dataset.benchmark, run.spec, run.dataset.definition, file)
        convert(raw, matrix, inputs.locate_sidecar(matrix), Form.from_spec(form))
