"""Part 4: the paper's benchmarks at full width with the PyTorch backend on one GPU: time and energy per epoch.

The samples are random numbers of the real size: they say nothing of accuracy, and need no files.
"""

import csv
import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from study.core.paths import ROOT
from study.launch.gpu_check.context import Context
from study.launch.gpu_check.results import NotPossible, write_csv
from study.launch.gpu_check.torch_work import need

BENCHMARKS = ("nt3", "p1b1", "p1b2", "p1b3")
BUDGET_S = 30.0  # of measured epochs of each, at the default of --minutes; one is always measured
MOST_EPOCHS = 5
EVERY_S = 0.1
PUBLISHED = ROOT / "config" / "papers" / "icpp2019" / "icpp2019_table2_nt3_strong.csv"
SOURCE = "one V100 of Summit, icpp2019, Table 2"
COLUMNS = ("benchmark", "time_s", "power_w", "energy_j", "utilization_pct", "memory_mb", "clock_mhz")
EPOCH_COLUMNS = ("benchmark", "epoch", "time_s", "loss", "samples")
Rows = list[dict[str, Any]]


def check(context: Context) -> None:
    """Each benchmark; one that cannot be trained leaves the others."""
    uuid = context.first()
    need(context.kind)
    epochs: Rows = []
    readings: Rows = []
    for name in BENCHMARKS:
        context.say(f"benchmarks: {name}")
        try:
            _one(context, uuid, name, epochs, readings)
        except NotPossible as why:
            context.rows.not_possible(f"{name}, time per epoch", why, device=uuid)
        except MemoryError:
            context.rows.not_possible(f"{name}, time per epoch", "too little memory of the host", device=uuid)
        except Exception as error:  # such as the GPU's memory; the next one may be smaller
            problem = f"{type(error).__name__}: {error}"
            context.rows.judge(f"{name}, time per epoch", problem, device=uuid)
        write_csv(context.output / "samples_benchmarks.csv", COLUMNS, readings)
        write_csv(context.output / "samples_benchmark_epochs.csv", EPOCH_COLUMNS, epochs)


def _one(context: Context, uuid: str, name: str, epochs: Rows, readings: Rows) -> None:
    trainer, samples = trainer_of(name, context.kind)
    trainer.train_epoch(0, lambda: None)  # not counted: the first steps choose algorithms and allocate memory
    own: Rows = []
    with _Sampled(context, uuid, name) as sampled:
        begin = last = context.clock.now()
        while not own or (last - begin < BUDGET_S * context.share and len(own) < MOST_EPOCHS):
            logs = trainer.train_epoch(len(own) + 1, lambda: None)
            now = context.clock.now()
            about = {"benchmark": name, "epoch": len(own) + 1, "samples": samples}
            own.append({**about, "time_s": now - last, "loss": float(logs["loss"])})
            last = now
    epochs += own
    readings += sampled.rows
    _tell(context, uuid, name, own, sampled.rows)


def _tell(context: Context, uuid: str, name: str, epochs: Rows, readings: Rows) -> None:
    """Rows of a benchmark; NT3's beside the published ones."""
    time_s = float(np.median([row["time_s"] for row in epochs]))
    finite = all(math.isfinite(row["loss"]) for row in epochs)
    published = _published() if name == "nt3" else {}
    problem = None if finite else "the loss is not finite"
    rows = context.rows
    about = {"device": uuid, "unit": "s", "expected": _beside(published, "time_per_epoch_s", "s")}
    rows.judge(f"{name}, time per epoch, median of {len(epochs)}", problem, time_s, **about)
    watts = [row["power_w"] for row in readings if row["power_w"] is not None]
    used = [row["utilization_pct"] for row in readings if row["utilization_pct"] is not None]
    for what, unit, values, key in (
        ("mean power", "W", watts, "power_per_gpu_w"),
        ("mean utilisation", "%", used, ""),
    ):
        about = {"device": uuid, "unit": unit, "expected": _beside(published, key, unit)}
        if values:
            value = float(np.mean(values))
            rows.judge(f"{name}, {what}", None if value > 0 else f"it was {value:g} while training", value, **about)
        else:
            rows.not_possible(f"{name}, {what}", "no reading in the measured epochs", **about)
    _energy(context, uuid, name, epochs, readings)


def _energy(context: Context, uuid: str, name: str, epochs: Rows, readings: Rows) -> None:
    """Joules by the counter, between the first and the last reading, scaled to the time of the epochs."""
    about = {"device": uuid, "unit": "J", "expected": "told, not judged"}
    known = [(row["time_s"], row["energy_j"]) for row in readings if row["energy_j"] is not None]
    span = known[-1][0] - known[0][0] if known else 0.0
    if span <= 0:
        context.rows.not_possible(f"{name}, energy per epoch", "too few readings of a counter", **about)
        return
    watts = (known[-1][1] - known[0][1]) / span
    joules = watts * float(np.mean([row["time_s"] for row in epochs]))
    context.rows.judge(f"{name}, energy per epoch", None if joules > 0 else "the counter stood still", joules, **about)


def _published() -> dict[str, str]:
    """The row of one GPU with batch 20; nothing without the file."""
    if not PUBLISHED.is_file():
        return {}
    with open(PUBLISHED, newline="", encoding="utf-8") as file:
        found = [row for row in csv.DictReader(file) if row["gpus"] == "1" and row["batch_size"] == "20"]
    return found[0] if found else {}


def _beside(published: dict[str, str], key: str, unit: str) -> str:
    return f"published {published[key]} {unit} ({SOURCE}); not judged" if key in published else "told, not judged"


def trainer_of(name: str, kind: str, sizes: dict[str, int] | None = None) -> tuple[Any, int]:
    """(trainer of a benchmark on one GPU, or on the CPU for kind ``cpu``; its number of samples).

    sizes: ``train_samples`` and ``features`` instead of the benchmark's own. Raises `NotPossible` where a package that
    the library needs is not there.
    """
    try:
        from study import backends
        from study.communication.collectives import Collectives
        from study.communication.subset import Alone
        from study.experiment import expansion, inputs
        from study.machines import machine
    except ImportError as error:
        raise NotPossible(f"the library needs a package that is not here: {error}") from None
    point = {"benchmark": name, "scaling": "weak", "epochs": 8, "gpus": 1, "loader": "npy"}
    content = {"description": "GPU check", "datasets": {name: {"source": "url"}}, "tables": ["scaling"],
               "runs": [{**point, "framework": "pytorch", "strategy": "ddp"}]}  # fmt: skip
    (planned,) = expansion.expand("gpu_check", content, "gpu_check").runs
    on = {**machine.load("local"), "gpus_per_rank": int(kind != "cpu")}
    run = inputs.define(planned, on, "data")
    run = replace(run, benchmark={**run.benchmark, "validation_share": 0})
    backend = backends.of_run(run)
    size = {**planned.spec["workload"], **(sizes or {})}
    alone = Alone(cast(Collectives, SimpleNamespace(local_rank=0, own_threads=frozenset(), libraries={})))
    data = _data(name, size["train_samples"], size["features"], planned.spec["model"].get("classes", 1))
    made = backend.build(backend.workload(run), run, alone, data)
    made.begin(0)
    return made, size["train_samples"]


def _data(name: str, samples: int, features: int, classes: int) -> Any:
    """Random samples in memory, of the shapes that the benchmark's own have."""
    from study.data.samples import Arrays
    from study.workloads.base import Data

    random = np.random.default_rng(7)
    inputs = features + 1 if name == "p1b3" else features  # the concentration is one more
    x = random.random((samples, inputs), dtype=np.float32)
    if name == "p1b1":
        both = Arrays(x, x)
    elif name == "p1b3":
        both = Arrays(x, random.random((samples, 1), dtype=np.float32))
    else:
        both = Arrays(
            x[:, :, None] if name == "nt3" else x,
            np.eye(classes, dtype=np.float32)[random.integers(classes, size=samples)],
        )
    return Data(both, both, both, features=features)


class _Sampled:
    """Readings of a GPU's sensor by a thread while the block runs."""

    def __init__(self, context: Context, uuid: str, name: str) -> None:
        self._device, self._clock, self._name = context.device(uuid), context.clock, name
        self._ended = threading.Event()
        self.rows: Rows = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        begin = self._clock.now()
        while True:
            reading = vars(self._device.read())
            self.rows.append({"benchmark": self._name, "time_s": self._clock.now() - begin, **reading})
            if self._ended.wait(EVERY_S):
                return

    def __enter__(self) -> "_Sampled":
        self._thread.start()
        return self

    def __exit__(self, *_: Sequence[Any]) -> None:
        self._ended.set()
        self._thread.join()
