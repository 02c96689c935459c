"""A study that runs while faults strike it: its processes, its files, its disk and its memory."""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import control_groups
import psutil
from data_faults import NotHere, SmallDisk
from project import BIN, WAIT_S, copy_of_project

STUDY = """
description: a study in chaos
datasets:
  nt3: {source: synthetic, train_samples: 60, test_samples: 20, features: 60, seed: 1}
runs:
  - {benchmark: nt3, scaling: weak, epochs: 1, gpus: 2, loader: npy}
tables: [scaling]
"""
# A modelled power, so that there is telemetry; limits within which a rank that hangs is ended.
MACHINE = [("power_sensors: [nvml, rapl]", "power_sensors: []\nsampling_hz: 50\npower_model: {idle_w: 1, peak_w: 2}"),
           ("time_limit_s: 3600", "time_limit_s: 600\nstall_limit_s: 60")]  # fmt: skip
NAME = "chaos"  # of the study
DISK = "disk"  # the folder with data and results
MARK = "STUDY_CHAOS"  # variable that all processes of one study inherit
DISK_SIZE = "64m"
SCRIPTS = {
    "snakemake": "Snakemake", "launch_training.py": "the launching process", "guard.py": "a guard",
    "horovodrun.py": "horovodrun", "train.py": "a rank", "sample_power.py": "the sampler",
    "fetch_dataset.py": "the generator of data", "convert_dataset.py": "a conversion",
    "update_records.py": "the record's maker", "collect_records.py": "the collector of records",
    "make_table.py": "the table's maker", "make_report.py": "the report's maker",
    "bash": "a shell", "sh": "a shell", "tee": "a shell",
}  # fmt: skip
# Processes and files that are there only until the data are made, or until the run has ended.
OF_DATA = {"the generator of data", "a conversion"}
OF_RUN = {"the launching process", "a guard", "horovodrun", "a rank", "the sampler", "a heartbeat", "a rank's phases",
          "a rank's telemetry"}  # fmt: skip
PROCESSES = tuple(dict.fromkeys(SCRIPTS.values()))
RUN = "results/local/runs/*/*/*"
MADE = f"results/local/studies/{NAME}"
ARTEFACTS = {
    "a raw file": "data/raw/*/*/*", "a checksum": "data/checksums/*/*/*",
    "a converted matrix": "data/converted/*/*/*.npy", "a sidecar": "data/converted/*/*/*.json",
    "a run's definition": f"{RUN}/run.yaml", "a run's provenance": f"{RUN}/provenance.json",
    "a heartbeat": f"{RUN}/ranks/heartbeat-*", "a rank's phases": f"{RUN}/ranks/phases-*",
    "a rank's telemetry": f"{RUN}/ranks/telemetry-*", "a history": f"{RUN}/history.csv",
    "a run's metrics": f"{RUN}/metrics.json", "a run's telemetry": f"{RUN}/telemetry.csv",
    "a run's phases": f"{RUN}/phases.jsonl", "an outcome": f"{RUN}/outcome.json", "a log": f"{RUN}/train.log",
    "a record": f"{RUN}/record.json", "runs.csv": f"{MADE}/runs.csv", "a table": f"{MADE}/tables/*",
    "the report": f"{MADE}/report.html",
}  # fmt: skip
FOLDERS = {"the folder of data": "data/*", "a run's folder": RUN, "the study's folder": MADE}
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


def make_ready(folder):
    """A copy of the project with the study, in which nothing has run; returns its `Project`."""
    project = copy_of_project(Path(folder) / "project")
    project.add_study(NAME, STUDY)
    for old, new in MACHINE:
        project.change("config/machines/local.yaml", old, new)
    (project.root / DISK).mkdir()
    return project


class Field:
    """One copy of the study, on a disk and with a memory limit of its own where ``small_disk`` and ``limited`` ask.

    Use as a context: afterwards none of its processes is left.
    """

    def __init__(self, project, small_disk=False, limited=False):
        self.project, self.mark = project, f"chaos-{uuid.uuid4()}"
        self.root, self.disk = project.root, project.root / DISK
        self.temporary = project.root.parent / "tmp"
        self.struck, self.snakemake = set(), None
        self._small_disk, self._limited = small_disk, limited
        self.memory, self._open = None, contextlib.ExitStack()

    def __enter__(self):
        self.temporary.mkdir()
        if self._small_disk and not os.geteuid():
            aside = self.disk.with_name("aside")
            self.disk.rename(aside)
            with contextlib.suppress(NotHere):  # then files have a limit instead
                self._open.enter_context(SmallDisk(self.disk, DISK_SIZE))
            shutil.copytree(aside, self.disk, dirs_exist_ok=True)
            shutil.rmtree(aside)
        if self._limited:
            self.memory = Memory.or_none(self.mark, self._open)
        return self

    def __exit__(self, *_):
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._open.close()

    def start(self, *arguments):
        """Start Snakemake; its output goes to ``said``."""
        line = [BIN / "snakemake", "--profile", "profiles/local", *arguments]
        line += ["--config", f"study={NAME}", f"data_dir={DISK}/data", f"results_dir={DISK}/results"]
        with open(self.said, "wb") as output:
            self.snakemake = subprocess.Popen(
                line, cwd=self.root, env=self.variables, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                start_new_session=True, preexec_fn=self._as_a_user,
            )  # fmt: skip
        return self.snakemake

    def run(self, *arguments):
        """Snakemake from start to end: (exit code, what it said)."""
        code = self.start(*arguments).wait(WAIT_S)
        return code, self.said.read_text(errors="replace")

    @property
    def said(self):
        return self.root.parent / "snakemake.log"

    @property
    def variables(self):
        return {**self.project.variables, MARK: self.mark, "TMPDIR": str(self.temporary)}

    def _as_a_user(self):
        """Before Snakemake starts: root loses the right to pass over permissions; Ctrl-C is heard behind an &, too."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if not os.geteuid():
            for right in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
                ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, right, 0, 0, 0)
        if self.memory:
            self.memory.enter()

    def processes(self):
        """All that runs for this study, oldest first; without zombies."""
        sign, found = f"{MARK}={self.mark}".encode(), []
        for number in sorted(psutil.pids()):
            with contextlib.suppress(OSError, psutil.Error):
                if sign in Path(f"/proc/{number}/environ").read_bytes():
                    process = psutil.Process(number)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return found

    def find(self, target):
        """What there is of a target now, a sorted list: processes, or paths."""
        if target in PROCESSES:
            return [process for process in self.processes() if role(process) == target]
        pattern = ARTEFACTS.get(target) or FOLDERS.get(target)
        if pattern:
            return sorted(path for path in self.disk.glob(pattern) if not path.is_symlink())
        return [target] if self.processes() else []  # the study as a whole


def role(process):
    """What a process is, a name in `PROCESSES`; None for others."""
    with contextlib.suppress(psutil.Error):
        for word in process.cmdline()[:6]:
            if found := SCRIPTS.get(Path(word).name):
                return found
    return None


class Memory:
    """A control group of memory, version 1 or 2, for one study."""

    ROOTS = ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "-1"),
             (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "max"))  # fmt: skip

    def __init__(self, folder, limit, usage, unlimited):
        self._folder, self._limit, self._usage, self._unlimited = folder, folder / limit, folder / usage, unlimited

    @classmethod
    def or_none(cls, name, stack):
        """A new group, removed when the stack ends; None where this user may not make one."""
        for root, limit, usage, unlimited in cls.ROOTS:
            if folder := control_groups.made(root, name, [limit, usage]):
                group = cls(folder, limit, usage, unlimited)
                stack.callback(group._remove)
                return group
        return None

    def enter(self):
        """Put this process into the group, and what it starts later."""
        control_groups.enter(self._folder, os.getpid())

    def limit(self, more):
        """No more memory than it has now and ``more`` bytes."""
        self._limit.write_text(str(int(self._usage.read_text()) + more))

    def lift(self):
        self._limit.write_text(self._unlimited)

    def _remove(self):
        for _ in range(100):
            with contextlib.suppress(OSError):
                self._folder.rmdir()
                return
            time.sleep(0.1)
        print(f"warning: {self._folder} is not empty", file=sys.stderr)
