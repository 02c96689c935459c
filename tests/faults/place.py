"""Where a fault is put in: a small dataset, runs to launch on it, and the clock from the fault to its detection."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import yaml
from project import WAIT_S, copy_of_project

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"

from study.core import configuration
from study.data.conversion import convert
from study.data.tabular import Form
from study.experiment import expansion, inputs
from study.instruments import phases
from study.machines import machine
from study.workloads.synthetic import generate_file

SYNTHETIC = {"source": "synthetic", "train_samples": 60, "test_samples": 20, "features": 60, "seed": 1}
POINT = {"benchmark": "nt3", "scaling": "weak", "epochs": 2, "gpus": 2, "loader": "npy"}


class Place:
    """One fault's own folder, with data made once for all of them."""

    prefix = ()  # of the command line that launches a run
    point = {}  # what all its runs change of `POINT`

    def __init__(self, folder, data, good=None):
        """good: a folder in which one good run is kept for several places; None: each place trains its own."""
        self.folder, self.data, self.good = Path(folder), Path(data), good and Path(good)
        self.seconds = None
        self.variables = {}  # of the launching process, besides this one's
        self._since = self._copy = self._launched = None

    def injected(self):
        """The fault is in from now on."""
        self._since = time.monotonic()

    def detected(self):
        """It was noticed just now, or its process has ended."""
        self.seconds = time.monotonic() - self._since

    def definition(self, **changes):
        """The content of a ``run.yaml``; changes: of `POINT`, or ``data``, ``machine``: of those parts."""
        on = self.machine() | changes.pop("machine", {})
        data = changes.pop("data", {})
        point = {**POINT, **self.point, **changes}
        content = {"description": "", "datasets": {"nt3": SYNTHETIC}, "runs": [point], "tables": []}
        (run,) = expansion.expand_study("faults", content, "faults").runs
        run = inputs.define_run(run, on, str(self.data)).as_dict()
        run["data"] |= data
        return run

    def machine(self):
        """The machine on which runs are launched."""
        return machine.load("local")

    @property
    def copy(self):
        """A copy of the project, for faults that need ranks of another code; from then on runs are launched from it."""
        if self._copy is None:
            self._copy = copy_of_project(self.folder / "project")
        return self._copy

    def launch(self, name="run", options=(), **changes):
        """Start a run in ``folder/name``; returns the launching process."""
        folder = self.folder / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        given = self.folder / f"{folder.name}.yaml"
        given.write_text(yaml.safe_dump(self.definition(**changes)))
        root = self._copy.root if self._copy else ROOT
        program = root / "scripts" / "launch_training.py"
        line = [*self.prefix, sys.executable, program, "--run", given, "--outcome", folder / "outcome.json"]
        self._launched = subprocess.Popen(
            [*line, *options], cwd=root, env={**(self._copy.variables if self._copy else os.environ), **self.variables},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored behind a shell's &
        )  # fmt: skip
        return self._launched

    def run(self, name="run", options=(), **changes):
        """A run from start to end; returns its outcome."""
        launch = self.launch(name, options, **changes)
        _, errors = launch.communicate(timeout=WAIT_S)
        assert launch.returncode == 0, errors
        return self.outcome(name)

    def outcome(self, name="run"):
        return json.loads((self.folder / name / "outcome.json").read_text())

    def has_outcome(self, name="run"):
        return (self.folder / name / "outcome.json").exists()

    def ranks(self, name="run"):
        """The processes of a run's ranks, by rank; with another strategy than Horovod's all, by their numbers."""
        found = {}
        for process in psutil.process_iter(["cmdline"]):
            line = process.info["cmdline"] or []
            if any(word.endswith("scripts/train.py") for word in line[:3]) and str(self.folder / name) in line:
                own = process.environ()
                rank = own.get("HOROVOD_RANK") or json.loads(own.get("STUDY_PROCESS", "[null]"))[0]
                if rank is not None:
                    found[int(rank)] = process
        return found

    def processes(self, name="run"):
        """All that runs for a run: ranks, launcher, sampler."""
        folder = str(self.folder / name)
        return [
            process for process in psutil.process_iter(["cmdline", "status"])
            if process.info["status"] != psutil.STATUS_ZOMBIE and folder in (process.info["cmdline"] or [])
            and "launch_training.py" not in " ".join(process.info["cmdline"])
        ]  # fmt: skip

    def wait_until(self, condition, what):
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, f"waited {WAIT_S} s for {what}"
            time.sleep(0.05)

    def wait_for_epoch(self, epoch, name="run"):
        """Wait until rank 0 has said that an epoch has ended."""
        log = self.folder / name / "train.log"
        self._wait_in_run(lambda: log.exists() and f"epoch {epoch}/" in log.read_text(), f"epoch {epoch}")

    def wait_for_phase(self, phase, rank=1, name="run"):
        """Wait until a rank is in a phase."""
        log = self.folder / name / "ranks" / f"phases-{rank:05d}.jsonl"

        def is_there():
            return log.exists() and any(edge["phase"] == phase for edge in phases.read_edges(log, is_merged=False))

        self._wait_in_run(is_there, f"rank {rank} in {phase}")

    def _wait_in_run(self, condition, what):
        """Wait for something of the run that was launched last, as long as it runs."""
        self.wait_until(lambda: condition() or self._launched.poll() is not None, what)
        assert condition(), f"the run ended before {what}: {self._launched.stderr.read()[-800:]}"

    def seconds_in(self, phase, rank, name="run"):
        """How long a rank of a run that has ended was in a phase."""
        edges = [
            e
            for e in phases.read_edges(self.folder / name / "phases.jsonl")
            if (e["phase"], e["rank"]) == (phase, rank)
        ]
        begin, end = (next(e["monotonic_ns"] for e in edges if e["edge"] == edge) for edge in ("begin", "end"))
        return (end - begin) / 1e9

    def nothing_is_left(self, name="run"):
        """Whether within a few seconds no process of a run is there any more."""
        self.wait_until(lambda: self.processes(name) == [], "its processes to end")


def signal_and_wait(place, launch, process, number):
    """Send a signal to a process, wait for the launch to end, and note how long that took."""
    place.injected()
    process.send_signal(number)
    launch.wait(WAIT_S)
    place.detected()


def make_data(folder):
    """The synthetic files that all faults' runs read, raw and converted."""
    spec = configuration.load_named("benchmarks", "nt3")
    content = {"description": "", "datasets": {"nt3": SYNTHETIC}, "runs": [POINT], "tables": []}
    (run,) = expansion.expand_study("faults", content, "faults").runs
    for file, form in spec["files"].items():
        raw, matrix = run.dataset.locate_raw(folder, file), run.dataset.locate_converted(folder, file)
        generate_file(raw, "nt3", spec, SYNTHETIC, file)
        convert(raw, matrix, inputs.locate_sidecar(matrix), Form.from_spec(form))
    return folder


def one_line_error(line, words, **options):
    """Run a command line that must end with one line of error that has all ``words``, and no traceback."""
    done = subprocess.run([str(each) for each in line], capture_output=True, text=True, timeout=WAIT_S, **options)
    said = [each for each in done.stderr.splitlines() if each.startswith("error: ")]
    assert done.returncode == 1, f"exit code {done.returncode}: {done.stderr[-500:]}"
    assert "Traceback" not in done.stderr and len(said) == 1, done.stderr[-1500:]
    missing = [word for word in words if word not in said[0]]
    assert not missing, f"{missing} not in {said[0]}"
    return said[0]
