"""The examples of commands, each in a folder of its own: from the study to findings and a recommendation."""

import os
import re
import shutil
import subprocess

import fork_server
import pandas as pd
import pytest
import yaml
from project import BIN, ROOT, WAIT_S

LINES = ["--profile", ROOT / "profiles" / "local", "--workflow-profile", ROOT / "profiles" / "default"]
EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/Snakefile"))


@pytest.fixture
def example(request, tmp_path):
    """A copy of an example; changes: {grid key: value} of its study."""

    def make(name, **changes):
        folder = tmp_path / "an example"
        shutil.copytree(ROOT / "examples" / name, folder, ignore=shutil.ignore_patterns("results", ".snakemake"))
        snakefile = folder / "Snakefile"
        snakefile.write_text(snakefile.read_text().replace("../../Snakefile", str(ROOT / "Snakefile")))
        (folder / "config" / "machines").mkdir()
        here = (ROOT / "config" / "machines" / "local_processes.yaml").read_text()
        (folder / "config" / "machines" / "local_processes.yaml").write_text(f"{here}repeat_disturbed: 0\n")
        path = folder / "config" / "studies" / f"{name}.yaml"
        study = yaml.safe_load(path.read_text())
        study["runs"][0] = {key: value for key, value in (study["runs"][0] | changes).items() if value is not None}
        path.write_text(yaml.safe_dump(study))
        return folder

    return make


def called(folder, program, *arguments):
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    if program == "snakemake":
        done = fork_server.run(arguments, folder, variables, WAIT_S)
    else:
        done = subprocess.run(
            [BIN / program, *arguments], cwd=folder, env=variables, capture_output=True, text=True, timeout=WAIT_S
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_a_program_is_measured_from_its_events_to_findings(example):
    folder = example("numpy_logistic", gpus=[1, 2], repeats=1, tuning=None)
    other = folder.parent / "busybody"
    shutil.copy("/bin/sh", other)
    with subprocess.Popen([other, "-c", "while :; do :; done"]) as busy:
        said = called(folder, "snakemake", *LINES, "--until", "train").stderr
        busy.kill()
    called(folder, "snakemake", *LINES)
    study = folder / "results" / "local_processes" / "studies" / "numpy_logistic"
    runs = pd.read_csv(study / "runs.csv")
    assert list(runs["status"]) == ["ok", "ok"]
    assert runs["disturbed"].all() and runs["disturbed_by"].str.contains("busybody").all()
    assert said.count("disturbed: other processes used") == 2
    assert pd.read_csv(study / "tables" / "scaling.csv")["runs_disturbed"].tolist() == [1, 1]
    assert (runs[["load_s", "train_s", "evaluate_s", "time_per_epoch_s", "throughput_samples_per_s"]] > 0).all(
        axis=None
    )
    assert list(runs["samples_per_rank"]) == [20_000, 10_000] and (runs["test_accuracy"] > 0.9).all()
    assert "second rank" in (study / "findings.md").read_text()
    scaling = pd.read_csv(study / "tables" / "scaling.csv")
    assert scaling["efficiency"].iloc[0] == 1 and scaling["speedup"].iloc[1] > 0
    assert "Nothing to be done" in called(folder, "snakemake", "-n", *LINES).stdout
    (folder / "train.py").write_text((folder / "train.py").read_text() + "\n# changed\n")
    called(folder, "snakemake", *LINES)
    assert not pd.read_csv(study / "runs.csv")["code_is_current"].any(), "its runs stay, as of older code"


# Until the runs of block 1 have ended: before they run again, the machine must be quiet.
BURNER = (
    "until test $(ls results/noticing/runs/*/*/*/outcome.json 2>/dev/null | wc -l) -ge 2; "
    "do i=0; while test $i -lt 20000; do i=$((i + 1)); done; done"
)


@pytest.mark.timed
@pytest.mark.long
def test_a_disturbed_block_is_run_again_by_the_same_command(example):
    folder = example("shell_counter", gpus=[1, 2], repeats=1)
    path = folder / "config" / "studies" / "shell_counter.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "findings": []}))
    path = folder / "config" / "benchmarks" / "shell_counter.yaml"
    path.write_text(path.read_text().replace("4000000", "400000"))
    (folder / "config" / "machines" / "noticing.yaml").write_text(
        "base: local\ndescription: a test\nlauncher: processes\ndisturbance: {others_cpu_share: 0.02}\n"
    )
    here = folder / "config" / "config.yaml"
    here.write_text(here.read_text().replace("local_processes", "noticing"))
    with subprocess.Popen(["sh", "-c", BURNER], cwd=folder) as burner:
        try:
            said = called(folder, "python", "-m", "study.commands.main", "run").stderr
        finally:
            burner.kill()
    assert "a block with a disturbed run is run again at the end, at most 1 time (repeat_disturbed" in said
    assert said.count("block 1 is run again, attempt 2 of at most 2 (2 runs)") == 2, "at the end, and in the next plan"
    assert "give the same command again" not in said
    study = folder / "results" / "noticing" / "studies" / "shell_counter"
    attempts, runs = pd.read_csv(study / "attempts.csv"), pd.read_csv(study / "runs.csv")
    assert attempts["attempt"].tolist() == [1, 2, 1, 2] and attempts["counts"].tolist() == [False, True] * 2
    assert attempts[~attempts["counts"]]["disturbed"].any()
    assert "waiting until other processes leave this machine alone" in said
    assert runs["attempt"].tolist() == [2, 2] and list(runs["record"]) == list(attempts[attempts["counts"]]["record"])
    assert runs["session"].nunique() == 1, "or they would not be compared"
    assert all((folder / "results" / "noticing" / record).is_file() for record in attempts["record"])
    assert "Block 1 was run again (2 runs)" in (study / "report.html").read_text()
    assert "Nothing to be done" in called(folder, "snakemake", "-n", *LINES).stdout


@pytest.mark.long
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_ends_in_findings_and_a_recommendation(example, name):
    if name.startswith("pytorch"):
        pytest.importorskip("torch", reason="the example is of PyTorch, which is not installed")
    folder = example(name)
    called(folder, "snakemake", *LINES)
    findings = (folder / "results" / "local_processes" / "studies" / name / "findings.md").read_text()
    assert re.search(r"shortens|No difference shown|lengthens", findings) and "Not enough runs" not in findings
    told = called(folder, "python", ROOT / "scripts" / "recommend.py", "--goal", "fastest").stdout
    assert "recommended: " in told
