"""The verb measure: how a command line is marked, what is written for it, what is refused, and one measurement."""

import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from examples import expand

from study.commands import main, measured_command
from study.commands.measured_command import MeasuredCommand, mark_ranks
from study.core.errors import StudyError
from study.experiment import expansion
from study.records.tidy import runs_frame
from study.report import terminal


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a script."""
    (tmp_path / "train.py").write_text("print('done')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "marked"),
    [
        ("python train.py --lr 0.1", "python train.py --lr 0.1"),
        ("torchrun --nproc-per-node 2 train.py", "torchrun --nproc-per-node {ranks} train.py"),
        ("torchrun --nproc_per_node=2 train.py -n 3", "torchrun --nproc_per_node={ranks} train.py -n 3"),
        ("torchrun train.py", "torchrun --nproc-per-node {ranks} train.py"),
        ("/opt/venv/bin/torchrun train.py", "/opt/venv/bin/torchrun --nproc-per-node {ranks} train.py"),
        (
            "python -m torch.distributed.run train.py",
            "python -m torch.distributed.run --nproc-per-node {ranks} train.py",
        ),
        ("accelerate launch --num_processes 4 a.py", "accelerate launch --num_processes {ranks} a.py"),
        ("accelerate config", "accelerate config"),
        ("deepspeed --num_gpus=8 train.py", "deepspeed --num_gpus={ranks} train.py"),
        ("horovodrun -np 4 python train.py", "horovodrun -np {ranks} python train.py"),
        ("mpirun --oversubscribe -n 2 ./a.out", "mpirun --oversubscribe -n {ranks} ./a.out"),
        ("env A=1 horovodrun -np 4 a.py", "env A=1 horovodrun -np {ranks} a.py"),
        ("fabric run --accelerator cpu --devices=4 a.py", "fabric run --accelerator cpu --devices={ranks} a.py"),
        ("srun --ntasks=2 python train.py", "srun --ntasks={ranks} python train.py"),
        ("./run.sh {ranks} {nothing} {seed}", "./run.sh {ranks} {{nothing}} {seed}"),
        ("torchrun --nproc-per-node {ranks} a.py -n 2", "torchrun --nproc-per-node {ranks} a.py -n 2"),
    ],
)
def test_the_number_of_ranks_is_found_in_a_command_line(line, marked):
    assert " ".join(mark_ranks(line.split())) == marked


def measured(folder, line="python train.py", **changes):
    words = mark_ranks(line.split())
    return MeasuredCommand(name="train", words=words, folder=folder, counts=[1, 2], **changes)


def test_what_is_written_is_a_study_of_the_command(folder, monkeypatch):
    """As a person would have written it: the workflow plans the runs of each count in each block."""
    command = measured(folder, "torchrun train.py", repeats=2, success="done", batch_size=8)
    assert len(measured_command.write_files(command)) == 7
    assert measured_command.write_files(command) == [], "nothing changed"
    monkeypatch.chdir(folder / "scaling")
    study = yaml.safe_load((folder / "scaling/config/studies/train.yaml").read_text())
    runs = expansion.expand_study("train", study, "train.yaml").runs
    assert [(run.gpus, run.repeat) for run in runs] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    spec = runs[0].spec
    assert (spec["starts"], spec["success"], spec["batch_size"]) == ("job", ["done"], 8)
    assert spec["folder"] == str(folder) and spec["code"] == ["train.py"]


def test_what_the_trial_wrote_is_moved_aside_unless_it_is_data(folder):
    written = ["model.pt", "{run_folder}/log.txt", "data/mnist/train.gz", "rank0.pt", "rank1.pt", "cache/a.ckpt"]
    command = measured_command.sort_written_files(measured(folder), written)
    fresh = ["{written}/model.pt", "{written}/rank[0-9]*.pt", "{written}/cache/a.ckpt"]
    assert (command.fresh, command.reuses) == (fresh, ["data/mnist/train.gz"])
    benchmarks = [command.make_files()[f"config/benchmarks/{name}.yaml"] for name in ("train", "train_trial")]
    assert benchmarks[0] == benchmarks[1] | {"fresh": command.fresh, "reuses": command.reuses}


def test_files_that_were_changed_by_hand_are_kept(folder):
    measured_command.write_files(measured(folder))
    file = folder / "scaling" / "config" / "studies" / "train.yaml"
    file.write_text(file.read_text().replace("repeats: 3", "repeats: 5"))
    with pytest.raises(StudyError, match="train.yaml was written or changed by hand and is kept"):
        measured_command.write_files(measured(folder))


def test_each_version_of_the_code_has_results_of_its_own(folder):
    """A module beside the script counts too; other files do not."""
    first = measured(folder).results_dir
    (folder / "notes.txt").write_text("no code")
    assert measured(folder).results_dir == first
    (folder / "model.py").write_text("layers = 2\n")
    second = measured(folder).results_dir
    (folder / "model.py").write_text("layers = 3\n")
    assert len({first, second, measured(folder).results_dir}) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument 'COMMAND...'"),
        (["--ranks", "0,2", "true"], "'0,2' must be rank counts such as 64,128,256"),
        (["--metric", "loss", "true"], "'loss' must be NAME=PATTERN"),
        (["no_such_program"], "no_such_program: no such program in PATH"),
        (["python", "missing.py"], "missing.py does not exist; give the program relative to"),
        (["./train.py"], "train.py: is not executable; write chmod +x"),
        (["--python", "nowhere", "true"], "nowhere/bin/python does not exist"),
        (["--strict", "--ranks", "1,4096", "true"], "--ranks: 4096: this machine has"),
        (["--name", "a/b", "true"], "--name: 'a/b' must be of letters, digits and _"),
    ],
)
def test_what_cannot_be_measured_is_one_line(folder, arguments, message):
    ended = CliRunner().invoke(main.study, ["measure", *arguments])
    assert ended.exit_code != 0
    assert message in f"{ended.output}{ended.exception}"
    assert not (folder / "scaling").exists()


SINFO = """#!/bin/sh
case "$*" in *gpus*) echo "16 64 gpu:a100:4(S:0-3)"; echo "2 32 (null)" ;; *cpus*) echo "4 8+ (null)" ;; esac
"""


def test_a_partition_of_slurm_gives_the_machine(folder, monkeypatch):
    """One rank for each GPU, else for each core; a command that starts its ranks itself stays on a node."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "sinfo").write_text(SINFO)
    (programs / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    gpus, cpus = map(measured_command.read_partition, ("gpus", "cpus"))
    keys = ("nodes", "ranks_per_node", "cores_per_rank", "gpus_per_rank", "job_options")
    assert [gpus.describe_machine()[key] for key in keys] == [16, 4, 16, 1, ["--partition=gpus"]]
    assert [cpus.describe_machine()[key] for key in keys] == [4, 8, 1, 0, ["--partition=cpus"]]
    files = measured(folder, partition=gpus).make_files()
    assert (
        "jobs: 1 " in files["profiles/slurm/config.yaml"] and files["config/machines/here.yaml"]["scheduler"] == "slurm"
    )
    for arguments, message in (
        (["--partition", "none", "true"], "sinfo shows no nodes of a partition none"),
        (["--profile", "slurm", "true"], "name the partition too"),
        (["--partition", "gpus", "--ranks", "2,8", "sh", "-c", "{ranks}"], "--ranks: 8: a node has 4 ranks"),
        (["--partition", "gpus", "--ranks", "2,65", "sh", "train.sh"], "--ranks: 65: partition gpus has 64 ranks"),
    ):
        ended = CliRunner().invoke(main.study, ["measure", *arguments])
        assert ended.exit_code != 0 and message in f"{ended.output}{ended.exception}"


def test_the_packages_are_those_of_the_program_s_environment(tmp_path):
    """A program in an environment's folder brings it; else the Python of the shell does, as for mpirun."""
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "torchrun"):
        (programs / name).symlink_to(sys.executable)
    variables = {"PATH": f"{programs}:/usr/bin:/bin"}
    assert measured_command.find_prefix(["torchrun"], None, variables) is None
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    assert measured_command.find_prefix(["torchrun"], None, variables) == tmp_path / "venv"
    assert measured_command.find_prefix(["sh"], None, variables) == tmp_path / "venv", "of mpirun python train.py"
    assert measured_command.find_prefix(["sh"], None, {"PATH": f"{Path(sys.prefix, 'bin')}:/usr/bin:/bin"}) is None
    system = tmp_path / "system" / "bin"
    system.mkdir(parents=True)
    (system / "python").symlink_to(sys.executable)
    assert measured_command.find_prefix(["python"], None, {"PATH": str(system)}) == system.parent
    assert measured_command.find_prefix(["sh"], str(tmp_path / "venv"), variables) == tmp_path / "venv"


def test_the_table_in_the_terminal_has_energy_where_it_was_measured(make_recorded, tmp_path):
    runs = expand(gpus=[1, 2], epochs=8, repeats=2)
    for place, run in enumerate(sorted(runs, key=lambda run: (run.repeat, run.gpus))):
        make_recorded(run, runtime=12.0 / run.gpus, started=place * 60 * 10**9)
    frame = runs_frame(runs, {}, tmp_path / "local").assign(energy_job_j=None)
    header, first, second = (line.split() for line in terminal.format_scaling(frame))
    assert header == ["ranks", "runs", "runtime", "speedup", "95", "%", "interval", "efficiency"]
    assert first == ["1", "2", "12.00", "s", "1.00", "1.00", "to", "1.00", "100", "%"]
    assert second == ["2", "2", "6.00", "s", "2.00", "2.00", "to", "2.00", "100", "%"]
    lines = terminal.format_scaling(frame.assign(energy_job_j=[300.0, 300.0, 200.0, 200.0]))
    assert [line.split()[-2:] for line in lines[1:]] == [["300", "J"], ["200", "J"]]
