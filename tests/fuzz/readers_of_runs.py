"""Files of a run: its parts, its record, what its ranks leave; the table of runs, and points of other programs.

A part of a run is damaged together with its checksum: as a disk or a rank would leave it, before the checksum is taken.
"""

import contextlib
import csv
import gzip
import json
import math

import damage
import numpy as np
import pandas as pd
import run_files
import timelines
import yaml
from examples import expand
from readers import NOTHING_TO_COMPARE, Reader, reader

from study.compare import arms, likeness
from study.contrib.readers import series_files
from study.core.files import read_json, sha256, write_json
from study.experiment.definition import RunDefinition
from study.instruments import phases
from study.instruments.power import summary
from study.instruments.power.sampler import COLUMNS
from study.instruments.power.telemetry import read_series
from study.instruments.timeline import read_communication, summarize_timeline
from study.launch import failure
from study.records import record, tidy, versions
from study.report import terminal
from study.report.page.links import RecordLinks
from study.workloads.command import events

START = run_files.EPOCHS_NS


def read_rows(path):
    """The rows of a CSV file, by Python's own reader."""
    with open(path, encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def to_number(text):
    return float(text) if text else math.nan


def make_telemetry():
    """Lines of telemetry: 10 per second of host n1, from second 0 on."""
    lines = [",".join(COLUMNS)]
    for tick in range(40):
        for device, kind in enumerate(["memory", "cpu"]):
            measured = [100 + device + tick / 7, "", 50.0 * tick / 3 + device, "", "", "", "", tick]
            at = tick * 10**8
            lines.append(",".join(map(str, [START + at, at, "n1", "rapl", kind, f"d{device}", *measured])))
    return "\n".join(lines) + "\n"


@reader("metrics.json", "json")
@reader("provenance.json", "json")
class PartOfARun(Reader):
    """A file of a run, named as the reader, from which its record is made."""

    def prepare(self, folder):
        (self.run,) = expand(epochs=6)
        self.root = folder / "results"
        edges = [("evaluate", edge, rank, 3.0 + (edge == "end")) for rank in (0, 1) for edge in ("begin", "end")]
        self.folder = run_files.make_run(self.root, self.run, load=(1.0, 2.0), more_edges=edges)
        (self.folder / "telemetry.csv").write_text(make_telemetry())
        facts = read_json(self.folder / "provenance.json")
        host = facts["host"] | {"cpu": "cpu", "cores": 2, "memory_mb": 1000.0, "system": "Linux"}
        facts |= {"host": host, "gpus": {"found": [], "reason": "none"}, "python": "3.11", "job": None, "hosts": []}
        write_json(self.folder / "provenance.json", facts)
        self.seal(*(path for path in self.folder.iterdir() if path.name != "outcome.json"))
        return self.folder / self.name

    def seal(self, *paths):
        """Put the checksums of files into the outcome."""
        outcome = read_json(self.folder / "outcome.json")
        outcome["files"] |= {path.name: sha256(path) for path in paths}
        (self.folder / "outcome.json").write_text(json.dumps(outcome))

    def make_record(self, path):
        self.seal(path)
        content = record.make_record(self.folder)
        write_json(self.folder / "record.json", content)
        record.read_record(self.folder / "record.json")
        (self.folder / "record.json").unlink()
        return content

    def read(self, path):
        self.make_record(path)
        versions.version(path.parent)
        read_communication(path.parent)

    def names(self, path):
        return path.name, str(self.folder)


@reader("run.yaml", "yaml")
class Definition(PartOfARun):
    def damage(self, content):
        return damage.yaml_files(content, yaml.safe_dump)

    def read(self, path):
        self.make_record(path)
        return RunDefinition.read(path).as_dict()

    def expect(self, path):
        return damage.yaml_content(path)


@reader("history.csv", "csv")
class History(PartOfARun):
    def read(self, path):
        content = self.make_record(path)
        return [content["quality"][name] for name in ("loss", "accuracy")], content["training"]["learning_rate_used"]

    def expect(self, path):
        last = {name: to_number(text) for name, text in read_rows(path)[-1].items() if name in (
            "loss", "accuracy", "learning_rate")}  # fmt: skip
        quality = [last[name] if math.isfinite(last[name]) else None for name in ("loss", "accuracy")]
        return quality, last["learning_rate"]


@reader("telemetry.csv", "csv")
class Telemetry(PartOfARun):
    def read(self, path):
        series = read_series(path)
        content = self.make_record(path)
        edges = phases.read_edges(self.folder / "phases.jsonl")
        machine = RunDefinition.read(self.folder / "run.yaml").machine
        summary.energy_until(self.folder, machine, edges, START + 10**9, ("n1", 10**9))
        assert content["power"]["source"] in (None, "measured", "modelled")
        return {
            (one.host, one.sensor, one.kind, one.name): sorted(
                zip(one.seconds.tolist(), one.power_w.tolist(), one.energy_j.tolist(), strict=True)
            )
            for one in series
        }

    def expect(self, path):
        readings = {}
        for row in read_rows(path):
            values = int(row["monotonic_ns"]) / 1e9, to_number(row["power_w"]), to_number(row["energy_j"])
            device = row["host"], row["sensor"], row["kind"], row["device"]
            readings[device] = sorted([*readings.get(device, []), values])
        return readings


@reader("phases.jsonl", "jsonl")
class Phases(PartOfARun):
    def read(self, path):
        self.make_record(path)
        failure.describe_failure(self.folder, "hang", "a test")


@reader("record.json", "json")
class Record(PartOfARun):
    def prepare(self, folder):
        path = super().prepare(folder)
        write_json(path, record.make_record(self.folder))
        return path

    def read(self, path):
        row = tidy.runs_frame([self.run], {"nt3": "c0de"}, self.root / "local", reads_targets=True).iloc[0]
        return [None if row[name] is None else float(row[name]) for name in ("runtime_s", "peak_memory_mb", "load_s")]

    def expect(self, path):
        content = json.loads(path.read_text())
        if content["resumed_after_epoch"]:
            return NOTHING_TO_COMPARE
        load_s = content["phases"].get("load", {}).get("slowest_s")
        return content["runtime_s"], content["memory"] and content["memory"]["peak_memory_mb"], load_s


@reader("timeline.json.gz", "gz")
class Timeline(Reader):
    def prepare(self, folder):
        path = folder / "timeline.json.gz"
        path.write_bytes(gzip.compress(timelines.text(timelines.run()).encode()))
        return path

    def damage(self, content):
        return damage.gz_files(content, damage.jsonl_files)

    def read(self, path):
        """The number of events of one that lost nothing."""
        found = summarize_timeline(path, timelines.epoch_edges_ns()).summary
        assert all(math.isfinite(value) for value in found.values() if isinstance(value, float)), found
        self.is_whole = not found["lost_bytes"] + found["dropped_events"]
        return found["events"]

    def expect(self, path):
        with contextlib.suppress(ValueError):  # without its end, as a run leaves it that was ended
            return len(json.loads(gzip.decompress(path.read_bytes()))) if self.is_whole else NOTHING_TO_COMPARE
        return NOTHING_TO_COMPARE


@reader("events of a program", "jsonl")
class EventsOfAProgram(Reader):
    """Of a benchmark that is a command; its program may write anything."""

    def prepare(self, folder):
        path = folder / "events.jsonl"
        keys = ["run_start", *["epoch_start", "tracked_stats", "eval_accuracy", "epoch_stop"] * 3, "run_stop"]
        values = {"tracked_stats": {"loss": 0.5}, "eval_accuracy": 0.9}
        lines = [
            {"key": key, "value": values.get(key), "time_ns": START + at * 10**9, "monotonic_ns": at * 10**9, "rank": 0}
            for at, key in enumerate(keys)
        ]
        path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
        return path

    def read(self, path):
        log = phases.PhaseLog(path.with_name("phases.jsonl"), 0, "n1")
        log.edge("startup", "begin", (START, 0))
        progress = events.Progress(log, (START, 0))
        for line in path.read_bytes().split(b"\n"):
            if (event := events.parse_event(line, is_marked=False)) and events.choose_rank(event, {0: progress}) == 0:
                progress.take(event, events.get_moment(event))

    def names(self, path):
        return ("event", "epoch")


@reader("runs.csv", "csv")
class Runs(PartOfARun):
    """The table of a study's runs."""

    def prepare(self, folder):
        super().prepare(folder)
        write_json(self.folder / "record.json", record.make_record(self.folder))
        frame = tidy.runs_frame([self.run] * 2, {"nt3": "c0de"}, self.root / "local")
        switches = json.dumps([["switch", "base", {"loader": ["npy", "read_csv"]}]])
        frame.assign(arms=[switches, None]).to_csv(folder / "runs.csv", index=False)
        return folder / "runs.csv"

    def read(self, path):
        frame = tidy.read_runs(path)
        terminal.print_failures(path, "results")
        RecordLinks(frame, pd.DataFrame())
        for text in frame.get("arms", []):
            arms.parse_arms(text)
        if "steering" in frame:
            likeness._differs_in_steering(frame)
        return [[float(value) for value in frame.get(name, [])] for name in ("runtime_s", "load_s", "peak_memory_mb")]

    def expect(self, path):
        rows = read_rows(path)
        return [
            [to_number(row[name]) for row in rows if name in row] for name in ("runtime_s", "load_s", "peak_memory_mb")
        ]

    def names(self, path):
        return path.name, str(path)


@reader("points.csv", "csv", content="series,ranks,nodes,runtime_s,batch_size\n"
        + "".join(f"a,{ranks},1,{10 + ranks}.5,8\n" for ranks in (1, 2, 4, 8)))  # fmt: skip
class Points(Reader):
    """Measured points that others bring: each ends in an answer, or in one line that names the file."""

    def prepare(self, folder):
        (folder / self.name).write_text(self.content)
        return folder / self.name

    def read(self, path):
        series = series_files.read_series_files([str(path)], "per_rank")
        for model in filter(None, (each.fit_model() for each in series)):
            low, median, high = model.predict_interval(np.array([64.0]))
            assert 0 < low[0] <= median[0] <= high[0] < math.inf
