"""A copy of the project to run Snakemake in, and the tiny study for it."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

STRONG = "  - {benchmark: nt3, scaling: strong, epochs: 4, gpus: [1, 2], loader: read_csv, repeats: 2}\n"
TINY = f"""
description: a test
datasets:
  nt3: {{source: synthetic, train_samples: 60, test_samples: 20, features: 60, seed: 1}}
  wide: {{benchmark: nt3, source: synthetic, train_samples: 20, test_samples: 10, features: 3000, seed: 1}}
runs:
{STRONG}\
  - {{benchmark: nt3, scaling: weak, epochs: 2, gpus: 2, loader: [read_csv, chunked, npy]}}
loading:
  - {{benchmark: nt3, dataset: wide, loader: [read_csv, chunked, npy], repeats: 2}}
tables: [scaling, icpp2019_table2, icpp2019_table3, icpp2019_table6, icpp2019_claims]
figures: [icpp2019_figure6, icpp2019_figure11_13, icpp2019_figure18]
"""


@dataclass
class Project:
    """A copy of the repository's files, with results of its own."""

    root: Path

    def snakemake(self, *arguments, study="tiny", check=True, timeout=600):
        line = [BIN / "snakemake", "--profile", "profiles/local", *arguments]
        if study:
            line += ["--config", f"study={study}"]
        done = subprocess.run(line, cwd=self.root, env=self.variables, capture_output=True, text=True, timeout=timeout)
        if check and done.returncode != 0:
            pytest.fail(f"{' '.join(map(str, line))}\n{done.stdout}\n{done.stderr}")
        return done

    def plan(self, *arguments, study="tiny"):
        """What Snakemake would do: {rule: number of jobs}, from its own dry run; without the target rule."""
        text = self.snakemake("--dry-run", *arguments, study=study)
        output = text.stdout + text.stderr
        assert "Nothing to be done" in output or "Job stats" in output
        table = re.search(r"Job stats:\njob +count\n[- ]+\n(.*?)\n\n", output + "\n\n", re.S)
        jobs = dict(line.split() for line in table.group(1).splitlines()) if table else {}
        return {rule: int(count) for rule, count in jobs.items() if rule not in ("all", "total")}

    @property
    def variables(self):
        """The environment of commands in this copy: its own library goes before the installed one."""
        return {**os.environ, "PYTHONPATH": str((self.root / "scripts").resolve())}

    @property
    def results(self):
        return self.root / "results" / "local"

    def add_study(self, name, text):
        (self.root / "config" / "studies" / f"{name}.yaml").write_text(text)

    def change(self, file, old, new):
        path = self.root / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))


def copy_of_project(folder):
    """The repository's files as they are in the work tree, tracked or not yet."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return Project(folder)


def has_mpi():
    """Whether Horovod was built for MPI here."""
    built = subprocess.run([BIN / "horovodrun", "--check-build"], capture_output=True, text=True).stdout
    return "[X] MPI" in built.split("Available Tensor Operations")[0]
