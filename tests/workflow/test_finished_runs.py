"""A finished run is not trained again, and its outcome is not lost, whatever happens to files and Snakemake's state."""

import base64
import itertools
import os
import random
import shutil
import subprocess

import pytest
import yaml
from project import copy_tree

from study.core.files import read_json

LEARNING_RATE = "learning_rate: 0.001"


def files_of(project):
    return sorted(path for name in ("data", "results") for path in (project.root / name).rglob("*") if path.is_file())


def copied(project):
    """Data and results were copied without their times."""
    for name in ("data", "results"):
        folder = project.root / name
        if folder.exists():
            subprocess.run(["cp", "-r", folder, f"{folder}.new"], check=True)
            shutil.rmtree(folder)
            folder.with_name(f"{name}.new").rename(folder)


def touched(project):
    """All raw files are newer than all that was made of them."""
    for path in sorted(files_of(project), key=lambda path: "raw" in path.parts):
        path.touch()


def shuffled(project):
    """The files' times are in a random order."""
    paths = files_of(project)
    random.Random(7).shuffle(paths)
    now = paths[0].stat().st_mtime_ns
    for number, path in enumerate(paths):
        os.utime(path, ns=(now, now - number * 10**9))


def equal(project):
    """All times are alike, as in an archive."""
    for path in files_of(project):
        os.utime(path, (1_700_000_000, 1_700_000_000))


def without_state(project):
    """Snakemake's own folder was lost."""
    shutil.rmtree(project.root / ".snakemake", ignore_errors=True)


def killed(project):
    """Snakemake was killed after the runs had ended: it marked their outcomes as incomplete."""
    marks = project.root / ".snakemake" / "incomplete"
    marks.mkdir(parents=True, exist_ok=True)
    for path in project.results.glob("runs/*/*/*/outcome.json"):
        name = base64.b64encode(str(path.relative_to(project.root)).encode(), altchars=b"-_").decode()
        (marks / name).touch()


def without_data(project):
    """The data were deleted to save space."""
    shutil.rmtree(project.root / "data", ignore_errors=True)


def other_folder(project):
    """The folder is another one, with the same results and data."""
    moved = project.root.with_name(f"{project.root.name}-moved")
    project.root.rename(moved)
    project.root = moved


def other_data_folder(project):
    """The data have another place."""
    path = project.root / "config" / "config.yaml"
    content = yaml.safe_load(path.read_text())
    if (project.root / content["data_dir"]).exists():
        (project.root / content["data_dir"]).rename(project.root / "elsewhere")
    path.write_text(yaml.safe_dump({**content, "data_dir": "elsewhere"}))


EVENTS = {each.__name__: each for each in (copied, touched, shuffled, equal, without_state, killed, without_data,
                                           other_folder, other_data_folder)}  # fmt: skip
PAIRS = list(itertools.permutations(EVENTS, 2))


def outcomes_of(project):
    return {str(path.relative_to(project.results)): path.read_bytes()
            for path in project.results.glob("runs/*/*/*/outcome.json")}  # fmt: skip


def check_that_nothing_trains(project, events):
    before = outcomes_of(project)
    assert len(before) == 7
    for event in events:
        EVENTS[event](project)
    for options in ((), ("--rerun-incomplete",), ("--rerun-triggers", "mtime", "params", "input", "code")):
        assert not {"train", "measure_loading"} & set(project.plan(*options)), (events, options)
    assert outcomes_of(project) == before


@pytest.mark.parametrize("events", [("without_state", "touched"), ("other_data_folder", "killed")])
def test_a_finished_run_is_not_trained_again(project, events):
    check_that_nothing_trains(project, events)


@pytest.mark.long
@pytest.mark.slow
def test_a_finished_run_is_not_trained_again_after_any_two_events(project, tmp_path):
    root, wrong = project.root, []
    copy_tree(root, tmp_path / "kept")
    for events in PAIRS:
        shutil.rmtree(project.root)
        project.root = root
        copy_tree(tmp_path / "kept", root)
        try:
            check_that_nothing_trains(project, events)
        except AssertionError as error:
            wrong.append((events, str(error)[:200]))
    assert wrong == []


def test_what_takes_an_outcome_s_place_leaves_it_among_the_replaced(project):
    """A forced run, and one of another definition; the study has the new ones, and all later plans nothing to do."""
    outcome = next(project.results.glob("runs/nt3/*/*gpus~1+*repeat~2/outcome.json"))
    name, first = outcome.relative_to(project.results), outcome.read_bytes()
    without_state(project)
    project.snakemake("--forcerun", str(outcome.relative_to(project.root)), str(outcome.relative_to(project.root)))
    assert (project.results / "replaced" / "1" / name).read_bytes() == first
    second = outcome.read_bytes()
    assert second != first and read_json(outcome)["status"] == "ok"
    assert "train" not in project.plan()
    project.change("config/benchmarks/nt3.yaml", LEARNING_RATE, "learning_rate: 0.002")
    assert project.plan()["train"] == 7
    assert outcome.read_bytes() == second, "a dry run moves nothing"
    project.snakemake(str(outcome.relative_to(project.root)))
    assert (project.results / "replaced" / "2" / name).read_bytes() == second
    assert project.plan()["train"] == 6
    third = outcome.read_bytes()
    project.change("config/benchmarks/nt3.yaml", "learning_rate: 0.002", LEARNING_RATE)
    assert "train" not in project.plan(), "the outcome of this definition is among the replaced"
    project.snakemake()
    assert outcome.read_bytes() == second
    assert [each.read_bytes() for each in sorted(project.results.glob(f"replaced/*/{name}"))] == [first, third]
    shutil.rmtree(outcome.parent)
    assert project.plan()["train"] == 1
    project.snakemake(str(outcome.relative_to(project.root)))
    assert outcome.read_bytes() not in (first, second, third), "a folder that was deleted runs again"
