"""Files of a run: its parts, its record, what its ranks leave.

A part of a run is damaged together with its checksum: as a disk or a rank would leave it, before the checksum is taken.
"""

import csv
import gzip
import json
import math
import statistics

import damage
import run_files
import timelines
import yaml
from examples import expand
from readers import NOTHING_TO_COMPARE, Reader, reader

from study.core.files import sha256, write_json
from study.data.images.formats import INDEX  # noqa: F401  imports the formats before the clock of a case runs
from study.experiment.definition import RunDefinition
from study.experiment.target import Target
from study.instruments import calibration, phases
from study.instruments.power import summary
from study.instruments.power.sampler import COLUMNS
from study.instruments.power.telemetry import read_series
from study.instruments.timeline import read_communication, summarize_timeline
from study.launch import failure
from study.records import record, targets, tidy, versions
from study.workloads.command import events

EPOCHS = 3
START = run_files.EPOCHS_NS


def rows_of(path):
    """The rows of a CSV file, by Python's own reader."""
    with open(path, encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def number(text):
    return float(text) if text else math.nan


def readings(devices=2, ticks=40):
    """Lines of telemetry: 10 per second of host n1, from second 0 on."""
    lines = [",".join(COLUMNS)]
    for tick in range(ticks):
        for device in range(devices):
            at = int(tick * 1e8)
            values = [100 + device + tick / 7, "", 50.0 * tick / 3 + device, "", "", "", "", tick]
            lines.append(
                ",".join(map(str, [START + at, at, "n1", "rapl", "cpu" if device else "memory", f"d{device}", *values]))
            )
    return "\n".join(lines) + "\n"


class PartOfARun(Reader):
    """A file of a run, from which its record is made."""

    file = ""
    point = {"epochs": 2 * EPOCHS}

    def prepare(self, folder):
        (run,) = expand(**self.point)
        self.planned, self.root = run, folder / "results"
        made = run_files.make_run(self.root, run, load=(1.0, 2.0), more_edges=[("evaluate", e, r, 3.0 + (e == "end"))
                                  for r in (0, 1) for e in ("begin", "end")])  # fmt: skip
        (made / "telemetry.csv").write_text(readings())
        write_json(made / calibration.FILE, calibration.summarize([0.2, 0.3], [0.2, 0.4], 2))
        facts = json.loads((made / "provenance.json").read_text())
        host = facts["host"] | {"cpu": "cpu", "cores": 2, "memory_mb": 1000.0, "system": "Linux"}
        facts |= {"host": host, "gpus": {"found": [], "reason": "none"}, "python": "3.11", "job": None, "hosts": []}
        write_json(made / "provenance.json", facts)
        self.folder = made
        outcome = json.loads((made / "outcome.json").read_text())
        outcome["files"] = {path.name: sha256(path) for path in made.iterdir() if path.name != "outcome.json"}
        write_json(made / "outcome.json", outcome)
        return made / self.file

    def damage(self, content):
        return damage.json_files(content)

    def record(self, path):
        if path.name != "outcome.json":
            outcome = json.loads((self.folder / "outcome.json").read_text())
            outcome["files"][path.name] = sha256(path)
            (self.folder / "outcome.json").write_text(json.dumps(outcome))
        found = record.make_record(self.folder)
        write_json(self.folder.parent / "record.json", found)
        record.read_record(self.folder.parent / "record.json")
        return found

    def names(self, path):
        return path.name, str(self.folder)


@reader("metrics.json", "json")
class Metrics(PartOfARun):
    file = "metrics.json"

    def read(self, path):
        found = self.record(path)
        tested = {name: found["quality"].get(f"test_{name}") for name in ("loss", "accuracy")}
        reads = {name: found["reading"][name] for name in ("shared", "storage")}
        return ((found["memory"] or {}).get("peak_memory_mb"), tested, found["workload"], found["model"]["parameters"],
                found["resumed_after_epoch"], reads)  # fmt: skip

    def expect(self, path):
        told = json.loads(path.read_text())
        known = told.get("processes") or told["ranks"]
        reads = {
            name: None if None in (sizes := [each[f"{name}_read_mb"] for each in known if f"{name}_read_mb" in each])
            else sum(sizes) for name in ("shared", "storage")
        }  # fmt: skip
        tested = {name: told["test"].get(name) for name in ("loss", "accuracy")}
        peaks = [each["peak_memory_mb"] for each in known]
        return (None if None in peaks else max(peaks), tested, told["workload"], told["parameters"],
                told["resumed_after_epoch"], reads)  # fmt: skip


@reader("provenance.json", "json")
class Provenance(PartOfARun):
    file = "provenance.json"

    def read(self, path):
        found = self.record(path)
        versions.version(path.parent)
        read_communication(path.parent)
        return (
            found["provenance"]["host"],
            found["data_mb"],
            found["provenance"]["packages"],
            found["provenance"]["steering"],
        )

    def expect(self, path):
        told = json.loads(path.read_text())
        sizes = {name: told["data"][name]["source"]["bytes"] / 1e6 for name in ("train", "test")}
        return told["host"]["name"], sizes, told["packages"], told["steering"]


@reader("run.yaml", "yaml")
class Definition(PartOfARun):
    file = "run.yaml"

    def damage(self, content):
        return damage.yaml_files(content, yaml.safe_dump, yaml.safe_load)

    def read(self, path):
        run = RunDefinition.read(path)
        found = self.record(path)
        return run.as_dict(), found["derived"], found["machine"]

    def expect(self, path):
        told = damage.yaml_content(path)
        return told, told["derived"], told["machine"]["name"]


@reader("history.csv", "csv")
class History(PartOfARun):
    file = "history.csv"

    def damage(self, content):
        return damage.csv_files(content)

    def read(self, path):
        found = self.record(path)
        (self.folder / "timeline.json.gz").write_bytes(gzip.compress(timelines.text(timelines.run()).encode()))
        read_communication(self.folder)
        (self.folder / "timeline.json.gz").unlink()
        target = targets.to_target(self.folder, found, Target("validation_accuracy", 0.8, True, "a test"))
        quality, training = found["quality"], found["training"]
        return (
            [quality[name] for name in ("loss", "accuracy", "validation_loss", "validation_accuracy")],
            training["learning_rate_used"],
            math.isclose(training["time_per_epoch_s"], self._mean(path), rel_tol=1e-12),
            target["epochs_to_target"],
        )

    @staticmethod
    def _mean(path):
        return statistics.fmean(float(row["time_s"]) for row in rows_of(path))

    def expect(self, path):
        rows = rows_of(path)
        values = [number(rows[-1][name]) for name in ("loss", "accuracy", "val_loss", "val_accuracy")]
        reached = [int(row["epoch"]) for row in rows if number(row["val_accuracy"]) >= 0.8]
        return ([value if math.isfinite(value) else None for value in values], number(rows[-1]["learning_rate"]), True,
                reached[0] if reached else None)  # fmt: skip


@reader("telemetry.csv", "csv")
class Telemetry(PartOfARun):
    file = "telemetry.csv"

    def damage(self, content):
        return damage.csv_files(content)

    def read(self, path):
        series = read_series(path)
        found = self.record(path)
        edges = phases.read_edges(self.folder / "phases.jsonl")
        machine = RunDefinition.read(self.folder / "run.yaml").machine
        summary.energy_until(self.folder, machine, edges, START + 10**9, ("n1", 10**9))
        assert found["power"]["source"] in (None, "measured", "modelled")
        return {
            (one.host, one.sensor, one.kind, one.name): sorted(zip(one.seconds.tolist(), one.power_w.tolist(),
                                                                   one.energy_j.tolist(), strict=True))
            for one in series
        }  # fmt: skip

    def expect(self, path):
        found = {}
        for row in rows_of(path):
            device = row["host"], row["sensor"], row["kind"], row["device"]
            found.setdefault(device, []).append(
                (int(row["monotonic_ns"]) / 1e9, number(row["power_w"]), number(row["energy_j"]))
            )
        return {device: sorted(values) for device, values in found.items()}


@reader("phases.jsonl", "json")
class Phases(PartOfARun):
    file = "phases.jsonl"

    def damage(self, content):
        return damage.jsonl_files(content)

    def read(self, path):
        found = self.record(path)
        failure.describe_failure(self.folder, "hang", "a test")
        return found["phases"].get("load", {}).get("rank_0_s")

    def expect(self, path):
        edges = [json.loads(line) for line in path.read_bytes().splitlines()]
        mine = sorted((e["monotonic_ns"], e["edge"]) for e in edges if (e["phase"], e["rank"]) == ("load", 0))
        total, begun, ended = 0.0, None, False
        for at, edge in mine:
            if edge == "begin":
                begun = at
            elif begun is not None:
                total, begun, ended = total + (at - begun) / 1e9, None, True
        if len({at for at, _ in mine}) < len(mine):
            return NOTHING_TO_COMPARE
        return total if ended else None


@reader("record.json", "json")
class Record(PartOfARun):
    file = "record.json"

    def prepare(self, folder):
        path = super().prepare(folder)
        write_json(path, record.make_record(self.folder))
        return path

    def read(self, path):
        row = tidy.runs_frame([self.planned], {"nt3": "c0de"}, self.root / "local", reads_targets=True).iloc[0]
        return [None if row[name] is None else float(row[name]) for name in ("runtime_s", "peak_memory_mb", "load_s")]

    def expect(self, path):
        told = json.loads(path.read_text())
        found = [told["runtime_s"], told["memory"] and told["memory"]["peak_memory_mb"],
                 told["phases"].get("load", {}).get("slowest_s")]  # fmt: skip
        if told["resumed_after_epoch"]:
            return NOTHING_TO_COMPARE
        return [None if value is None else float(value) for value in found]


@reader("timeline.json.gz", "gz")
class Timeline(Reader):
    def prepare(self, folder):
        path = folder / "timeline.json.gz"
        path.write_bytes(gzip.compress(timelines.text(timelines.run()).encode()))
        self.good = summarize_timeline(path, timelines.epoch_edges_ns()).summary
        return path

    def damage(self, content):
        events = json.loads(gzip.decompress(content))
        whole = damage.changed(events).map(lambda found: gzip.compress(json.dumps(found).encode()))
        numbers = damage.json_texts(events[:12]).map(gzip.compress)
        pieces = (b"},{", b"[", b'{"ph"', b"\xff", b'"ts": 1e400', b'"ts": Infinity', b"}")
        return whole | numbers | damage.gz_files(content, lambda plain: damage.cut(plain, pieces))

    def read(self, path):
        found = summarize_timeline(path, timelines.epoch_edges_ns()).summary
        lost = found["lost_bytes"] + found["dropped_events"]
        assert all(math.isfinite(value) for value in found.values() if isinstance(value, float)), found
        try:
            told = json.loads(gzip.decompress(path.read_bytes()))
        except (ValueError, OSError, EOFError, RecursionError, __import__("zlib").error):
            told = None
        if told is None and not lost:
            assert found["events"] == self.good["events"], "a damaged timeline counts as whole"
        return found["events"] if told is not None and not lost else -1

    def expect(self, path):
        try:
            told = json.loads(gzip.decompress(path.read_bytes()))
        except Exception:  # noqa: BLE001  damaged, in whatever way
            return NOTHING_TO_COMPARE
        found = summarize_timeline(path, timelines.epoch_edges_ns()).summary
        if found["lost_bytes"] + found["dropped_events"] or not isinstance(told, list):
            return NOTHING_TO_COMPARE
        return sum(isinstance(event, dict) for event in told)


@reader("events of a program", "jsonl")
class EventsOfAProgram(Reader):
    """Of a benchmark that is a command; its program may write anything."""

    def prepare(self, folder):
        path = folder / "events.jsonl"
        keys = ["run_start", *["epoch_start", "tracked_stats", "eval_accuracy", "epoch_stop"] * EPOCHS, "run_stop"]
        values = {"tracked_stats": {"loss": 0.5}, "eval_accuracy": 0.9}
        lines = [
            {"key": key, "value": values.get(key), "time_ns": START + at * 10**9, "monotonic_ns": at * 10**9, "rank": 0}
            for at, key in enumerate(keys)
        ]
        path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
        return path

    def damage(self, content):
        return damage.jsonl_files(content)

    def read(self, path):
        log = phases.PhaseLog(path.with_name("phases.jsonl"), 0, "n1")
        log.edge("startup", "begin", (START, 0))
        progress = events.Progress(log, (START, 0))
        for line in path.read_bytes().split(b"\n"):
            if (event := events.parse_event(line, is_marked=False)) and events.get_rank(event, 0) == 0:
                progress.take(event, events.get_moment(event))
        return

    def names(self, path):
        return ("event", "epoch")
