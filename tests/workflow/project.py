"""A copy of the project to run Snakemake in, and the tiny study for it."""

import functools
import importlib.util
import os
import re
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import fork_server
import pytest

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 1800  # only keeps what is broken from hanging
BIN = Path(sys.executable).parent

STRONG = "  - {benchmark: nt3, scaling: strong, epochs: 4, gpus: [1, 2], loader: read_csv, repeats: 2}\n"
TINY = f"""
description: "a test with {{braces}}, which are Snakemake's own, and $(quotes)"
datasets:
  nt3:
    {{source: synthetic, train_samples: 60, test_samples: 20, features: 60, seed: 1,
     target_quality: {{quantity: validation_loss, at_most: 1000, why: every first epoch reaches it}}}}
  wide: {{benchmark: nt3, source: synthetic, train_samples: 20, test_samples: 10, features: 3000, seed: 1}}
runs:
{STRONG}\
  - {{benchmark: nt3, scaling: weak, epochs: 2, gpus: 2, loader: [read_csv, chunked, npy]}}
loading:
  - {{benchmark: nt3, dataset: wide, loader: [read_csv, chunked, npy], repeats: 2}}
tables: [scaling, icpp2019_table2, icpp2019_table3, icpp2019_table6, icpp2019_claims]
figures: [icpp2019_figure6, icpp2019_figure11_13, icpp2019_figure18]
"""

FOR_EVER = "import time\ntime.sleep(36_000)\n"  # for `Project.in_ranks`
HELD = """import contextlib, pathlib, time
import tf_keras
callbacks = tf_keras.callbacks.CallbackList
began, ended = callbacks.on_epoch_begin, callbacks.on_train_batch_end
def on_epoch_begin(self, epoch, logs=None):
    self.epochs_done = epoch
    began(self, epoch, logs)
def on_train_batch_end(self, batch, logs=None):
    ended(self, batch, logs)
    with contextlib.suppress(OSError, ValueError):
        while int(pathlib.Path({file!r}).read_text()) <= self.epochs_done:
            time.sleep(0.02)
callbacks.on_epoch_begin, callbacks.on_train_batch_end = on_epoch_begin, on_train_batch_end
"""


@dataclass
class Project:
    """A copy of the repository's files, with results of its own."""

    root: Path
    study: str = "tiny"  # the last one that was run, or planned

    def snakemake(self, *arguments, study="tiny", check=True):
        self.study = study or self.study
        line = ["--profile", "profiles/local", *arguments, *(["--config", f"study={study}"] if study else [])]
        done = fork_server.run(line, self.root, self.variables, WAIT_S, has_forked_steps=True)
        if check and done.returncode != 0:
            pytest.fail(f"{' '.join(map(str, line))}\n{done.stdout}\n{done.stderr}")
        return done

    def make(self, *names, study):
        """Run a study, and make only these of its results: each other table takes a second, each figure two.

        names: as ``runs.csv`` or ``tables/scaling.md``.
        """
        self.study = study
        return self.snakemake(*(self.made.relative_to(self.root) / name for name in names), study=study)

    def plan(self, *arguments, study="tiny"):
        """What Snakemake would do: {rule: number of jobs}, from its own dry run; without the target rule."""
        return self.planned(*arguments, study=study)[0]

    def planned(self, *arguments, study="tiny"):
        """(`plan`, all that Snakemake says)."""
        text = self.snakemake("--dry-run", *arguments, study=study)
        output = text.stdout + text.stderr
        assert "Nothing to be done" in output or "Job stats" in output
        table = re.search(r"Job stats:\njob +count\n[- ]+\n(.*?)\n\n", output + "\n\n", re.S)
        jobs = dict(line.split() for line in table.group(1).splitlines()) if table else {}
        return {rule: int(count) for rule, count in jobs.items() if rule not in ("all", "total")}, output

    @property
    def variables(self):
        """The environment of commands in this copy: its own library goes before the installed one."""
        return {**os.environ, "PYTHONPATH": str((self.root / "scripts").resolve())}

    @property
    def results(self):
        """What the machine's runs and loading measurements left; records are named relative to it."""
        return self.root / "results" / "local"

    @property
    def made(self):
        """What was made of them for the last study: tidy tables, tables, figures."""
        return self.results / "studies" / self.study

    def add_study(self, name, text):
        (self.root / "config" / "studies" / f"{name}.yaml").write_text(text)

    def change(self, file, old, new):
        path = self.root / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    def append(self, file, text):
        with open(self.root / file, "a") as handle:
            handle.write(text)

    def in_ranks(self, code):
        """Have each rank of this copy's runs do this, lines of Python, before all else."""
        main = 'if __name__ == "__main__":\n'
        self.change("scripts/train.py", main, main + textwrap.indent(code, "    "))

    def hold_training(self, after):
        """From now on a run of this copy waits in the first step after so many epochs, until `release_training`."""
        if not self._hold.exists():
            self.in_ranks(HELD.format(file=str(self._hold)))
        aside = self._hold.with_suffix(".part")
        aside.write_text(str(after))
        aside.replace(self._hold)

    def release_training(self):
        """Let runs that wait go on, and later ones not wait at all."""
        self._hold.write_text("released")

    @property
    def _hold(self):
        return self.root.parent / f"{self.root.name}.hold"


def copy_tree(source, target):
    """As `shutil.copytree` with symbolic links and times, in a quarter of its CPU time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", "-T", source, target], check=True)


def copy_of_project(folder):
    """The repository's files as they are in the work tree, tracked or not yet; its local machine repeats no runs.

    Tests share this machine with each other, so most of their runs are disturbed.
    """
    names = [name for name in _files_of_project() if os.path.lexists(ROOT / name)]
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["xargs", "-0", "cp", "-a", "--parents", "-t", folder], cwd=ROOT, check=True,
                   input="\0".join(names), text=True)  # fmt: skip
    with open(folder / "config" / "machines" / "local.yaml", "a") as handle:
        handle.write("repeat_disturbed: 0\n")
    return Project(folder)


@functools.cache
def _files_of_project():
    listed = subprocess.run(
        ["git", "-C", ROOT, "-c", f"safe.directory={ROOT}",  # of another user, maybe, but its code runs here anyway
         "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    # With the bytecode, if `make setup` made it: without, each process that a test starts would compile all again.
    compiled = [path.relative_to(ROOT) for path in (ROOT / "scripts").rglob("__pycache__/*.pyc")]
    return [*listed.stdout.splitlines(), *map(str, compiled)]


@functools.cache
def has_mpi():
    """Whether Horovod was built for MPI here: its library is linked with MPI's. To ask Horovod imports TensorFlow."""
    found = importlib.util.find_spec("horovod")
    folders = map(Path, found.submodule_search_locations if found else ())
    return any(b"libmpi" in path.read_bytes() for folder in folders for path in folder.glob("tensorflow/mpi_lib*"))


def wait_for(condition, process=None, seconds=WAIT_S):
    """Wait until a condition holds; what it gives then. The limit only keeps a broken test from hanging.

    process: one that must not end before.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert process is None or process.poll() is None, f"{process.args} has ended"
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)
    return found
