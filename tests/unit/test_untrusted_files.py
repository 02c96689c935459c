"""What a run's folder or a configuration holds stays data: nothing is unpickled, and no name leaves its folder."""

import json
import os
import pickle

import numpy as np
import pytest
from examples import expand

from study.core import configuration, validation
from study.core.errors import StudyError
from study.core.files import write_json
from study.data.images import formats
from study.data.loaders import map_matrix
from study.experiment import expansion
from study.machines import machine
from study.prediction import goals
from study.records import versions
from study.records.record import make_record, read_record
from study.records.tidy import read_loading, read_runs
from study.training import checkpoints


class _Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_arrays_with_pickles_are_refused_and_not_read(tmp_path):
    """As matrix, as index of images, as checkpoint."""
    evil = np.array([_Evil(tmp_path / "made")], dtype=object)
    np.save(tmp_path / "m.npy", evil, allow_pickle=True)
    np.savez(tmp_path / "index.npz", label=evil)
    with pytest.raises((StudyError, ValueError)):
        map_matrix(tmp_path / "m.npy")
    with pytest.raises(StudyError, match=r"index\.npz: cannot be read"):
        formats.open_format("lmdb", tmp_path, 1)
    (tmp_path / "m.npz").write_bytes(pickle.dumps(_Evil(tmp_path / "made")))
    assert checkpoints._read_checkpoint(tmp_path / "m.npz") is None
    assert not (tmp_path / "made").exists()


OUTSIDE = ["../x", "../../etc/passwd", "/etc/passwd", "a/../../x", "..", ".", "a/b", "tiny\n", "", "x\0y", "~root"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_of_configurations_stay_in_their_folder(name):
    readers = (
        expansion.load_study, machine.load, goals.load,
        lambda name: configuration.load_named("benchmarks", name),
        lambda name: configuration.load_named("findings", name),
    )  # fmt: skip
    for read in readers:
        with pytest.raises(StudyError, match=r"there is no config/"):
            read(name)
    given = {"study": name, "machine": name, "data_dir": "d", "results_dir": "r"}
    with pytest.raises(StudyError):
        validation.validate(given, "config", "config.yaml")


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_of_datasets_and_files_of_a_benchmark_stay_in_their_folder(name):
    content = {
        "description": "a test", "runs": [], "tables": ["scaling"],
        "datasets": {name: {"source": "synthetic", "train_samples": 9, "test_samples": 9, "features": 9, "seed": 1}},
    }  # fmt: skip
    with pytest.raises(StudyError, match=r"test\.yaml: "):
        expansion.expand_study("test", content, "test.yaml")
    spec = json.loads(json.dumps(configuration.load_named("benchmarks", "nt3")))
    spec["files"]["train"]["name"] = name
    with pytest.raises(StudyError, match=r"files\.train\.name: "):
        validation.validate(spec, "benchmarks", "b.yaml")


@pytest.mark.parametrize("name", [name for name in OUTSIDE if name not in ("tiny\n", "x\0y", "~root", "")])
def test_names_of_files_in_outcomes_and_records_stay_in_the_run_s_folder(name, make_run):
    (run,) = expand()
    folder = make_run(run)
    record = make_record(folder)
    write_json(folder / "record.json", {**record, "files": {**record["files"], name: "0" * 64}})
    with pytest.raises(StudyError, match="files"):
        read_record(folder / "record.json")
    outcome = json.loads((folder / "outcome.json").read_text())
    write_json(folder / "outcome.json", {**outcome, "files": {**outcome["files"], name: "0" * 64}})
    with pytest.raises(StudyError, match="files"):
        make_record(folder)


@pytest.mark.parametrize("record", ["../../../etc/passwd", "/etc/passwd", "runs/../../x/y.json", "..", "../x/../y"])
def test_records_in_a_tidy_table_stay_in_the_results_folder(record, tmp_path):
    text = "machine,benchmark,status,file,loader,record\nm,nt3,ok,train,npy,{}\n"
    (tmp_path / "runs.csv").write_text(text.format(record))
    for read in (read_runs, read_loading):
        with pytest.raises(StudyError, match="is not in the results folder"):
            read(tmp_path / "runs.csv")
    for good in ("runs/nt3/a/b/record.json", "../theta/runs/nt3/a/b/record.json"):
        (tmp_path / "runs.csv").write_text(text.format(good))
        assert read_loading(tmp_path / "runs.csv")["record"].tolist() == [good]


def test_a_run_s_version_is_no_path(make_run):
    """It names the folder to which the run is copied."""
    folder = make_run(expand()[0])
    path = folder / "provenance.json"
    versions.version(folder)
    path.write_text(json.dumps({**json.loads(path.read_text()), "training_code": "../../x"}))
    with pytest.raises(StudyError, match=r"provenance\.json: training_code: "):
        versions.version(folder)


def test_links_in_a_run_s_folder_are_not_followed_when_it_is_put_aside(tmp_path):
    secret, run = tmp_path / "secret", tmp_path / "run"
    secret.write_text("secret")
    run.mkdir()
    (run / "link").symlink_to(secret)
    versions._copy(run, tmp_path / "copy")
    assert (tmp_path / "copy" / "link").is_symlink()


def test_ids_of_datasets_are_names(tmp_path):
    """They name folders, whatever the paths and patterns of the user's own files are."""
    own = {"source": "path", "train": "../../a b/$(x).csv", "test": "/etc/passwd"}
    content = {"description": "t", "tables": ["scaling"], "datasets": {"nt3": own}, "runs": []}
    run = {"benchmark": "nt3", "scaling": "strong", "epochs": 4, "gpus": 1, "loader": "read_csv"}
    (planned,) = expansion.expand_study("test", {**content, "runs": [run]}, "test.yaml").runs
    assert set(planned.dataset.id) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.")
    assert ".." not in planned.directory.split("/")
