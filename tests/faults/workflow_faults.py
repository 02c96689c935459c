"""What goes wrong around Snakemake: configurations, targets, and Snakemake itself killed or started twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
from place import WAIT_S, one_line_error
from project import FOR_EVER, copy_of_project
from registry import fault

STUDY = """
description: a fault
datasets:
  nt3: {source: synthetic, train_samples: 60, test_samples: 20, features: 60, seed: 1}
runs:
  - {benchmark: nt3, scaling: weak, epochs: EPOCHS, gpus: 1, loader: npy, repeats: 2}
tables: [scaling]
"""


class Project:
    """A copy of the repository's files, with results of its own."""

    def __init__(self, place, study=STUDY):
        copy = copy_of_project(place.folder / "project")
        self.copy, self.root, self.variables = copy, copy.root, copy.variables
        (self.root / "config" / "studies" / "fault.yaml").write_text(study.replace("EPOCHS", "1"))

    def start(self, *arguments):
        line = [Path(sys.executable).with_name("snakemake"), "--profile", "profiles/local", *arguments]
        return subprocess.Popen(
            [*line, "--config", "study=fault"], cwd=self.root, env=self.variables,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True,
        )  # fmt: skip

    def run(self, *arguments):
        """(exit code, what it said)."""
        process = self.start(*arguments)
        said, _ = process.communicate(timeout=WAIT_S)
        return process.returncode, said

    def runs(self):
        return pd.read_csv(self.root / "results" / "local" / "studies" / "fault" / "runs.csv")

    def outcomes(self):
        return list((self.root / "results" / "local").rglob("outcome.json"))

    def trains(self, epoch):
        """Whether a run has told the end of an epoch."""
        logs = (self.root / "results" / "local").rglob("train.log")
        return any(f"epoch {epoch}/" in path.read_text() for path in logs)


@fault("Snakemake is killed while a run trains", "workflow")
def snakemake_killed(place):
    """Nothing looks whole; the next Snakemake makes every point once, and its tables."""
    project = Project(place, STUDY.replace("EPOCHS", "2"))
    project.copy.hold_training(after=1)
    process = project.start()
    place.wait_until(lambda: project.trains(epoch=1), "a run")
    place.injected()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    place.wait_until(lambda: not _ranks_of(project), "its ranks to end")
    place.detected()
    assert project.outcomes() == []
    project.copy.release_training()
    assert project.run("--unlock")[0] == 0
    code, said = project.run()
    assert code == 0, said[-1500:]
    assert project.runs().status.tolist() == ["ok", "ok"]


def _ranks_of(project):
    import psutil

    return [p for p in psutil.process_iter(["cmdline"]) if str(project.root) in " ".join(p.info["cmdline"] or [])]


@fault("two Snakemakes at once", "workflow")
def two_snakemakes(place):
    """The second is refused, the first ends well, and every point was made once."""
    project = Project(place, STUDY.replace("EPOCHS", "2"))
    project.copy.hold_training(after=1)
    first = project.start()
    place.wait_until(lambda: project.trains(epoch=1), "a run")
    try:
        place.injected()
        code, said = project.run()
        place.detected()
        assert code == 1 and "another Snakemake is at work here" in said and "Traceback" not in said, said[-800:]
        assert first.poll() is None
    finally:
        project.copy.release_training()
    said, _ = first.communicate(timeout=WAIT_S)
    assert first.returncode == 0, said[-1500:]
    assert project.runs().status.tolist() == ["ok", "ok"]


@fault("one of two runs fails", "workflow")
def one_run_fails(place):
    """The study goes on to its tables, which count the failure; the failed run is not tried again."""
    project = Project(place, STUDY.replace("EPOCHS", "1"))
    machine = project.root / "config" / "machines" / "local.yaml"
    code, said = project.run("--until", "train")
    assert code == 0, said[-1500:]
    project.outcomes()[0].unlink()
    machine.write_text(machine.read_text().replace("time_limit_s: 3600", "time_limit_s: 1"))
    project.copy.in_ranks(FOR_EVER)
    place.injected()
    code, said = project.run()
    place.detected()
    assert code == 0, said[-1500:]
    assert sorted(project.runs().status) == ["failed", "ok"]
    table = pd.read_csv(project.root / "results" / "local" / "studies" / "fault" / "tables" / "scaling.csv").iloc[0]
    assert (table.repeats_ok, table.repeats_failed, table.failures) == (1, 1, "1 x timeout")
    assert "Nothing to be done" in project.run()[1]


@fault("a number in a table is changed", "workflow")
def table_changed(place):
    """The next Snakemake names the file and says to delete it; then the table is made again as it was."""
    project = Project(place)
    code, said = project.run()
    assert code == 0, said[-1500:]
    table = project.root / "results" / "local" / "studies" / "fault" / "tables" / "scaling.csv"
    before = table.read_text()
    table.write_text(before.replace(",20,", ",21,", 1))
    place.injected()
    code, said = project.run()
    place.detected()
    assert code == 1 and "Traceback" not in said, said[-1500:]
    assert f"{table.relative_to(project.root)}: was changed after it was made; delete it" in said, said[-1500:]
    table.unlink()
    code, said = project.run()
    assert code == 0 and table.read_text() == before, said[-1500:]


@fault("the configuration changes while a study runs", "workflow")
def configuration_changes(place):
    """The study's runs are the planned ones. The next plan has them again, with the change."""
    project = Project(place)
    project.copy.hold_training(after=0)
    study = project.start()
    place.wait_until(lambda: list((project.root / "results").rglob("run.yaml")), "the first run")
    place.injected()
    project.copy.change("config/benchmarks/nt3.yaml", "learning_rate: 0.001", "learning_rate: 0.004")
    project.copy.release_training()
    said, _ = study.communicate(timeout=WAIT_S)
    place.detected()
    assert study.returncode == 0, said[-1500:]
    runs = project.runs()
    assert list(zip(runs.status, runs.learning_rate, strict=True)) == [("ok", 0.001)] * 2
    assert project.copy.plan(study="fault")["train"] == 2


@fault("the configuration changes between the plan and a batch job", "workflow")
def configuration_changes_before_the_job(place):
    """A run of another configuration than today's is in no table: one line names it."""
    project = Project(place)
    code, said = project.run("--until", "train")
    assert code == 0, said[-1500:]
    project.copy.change("config/benchmarks/nt3.yaml", "learning_rate: 0.001", "learning_rate: 0.004")
    place.injected()
    made = project.root / "results" / "local" / "studies" / "fault"
    tables = [word for name in ("runs", "loading", "attempts") for word in (f"--{name}", str(made / f"{name}.csv"))]
    line = [sys.executable, project.root / "scripts" / "collect_records.py", "--study", "fault", "--machine", "local"]
    said = ["the configuration changed", "delete this folder"]
    one_line_error([*line, "--data", "data", *tables], said, cwd=project.root, env=project.variables)
    place.detected()
    assert not (made / "runs.csv").exists()
