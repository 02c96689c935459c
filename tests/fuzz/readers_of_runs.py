"""Files of a run: its parts, its record, what its ranks leave.

A part of a run is damaged together with its checksum: as a disk or a rank would leave it, before the checksum is taken.
"""

import csv
import gzip
import json
import math
import os
import statistics

import damage
import numpy as np
import run_files
import timelines
import yaml
from examples import expand
from readers import NOTHING_TO_COMPARE, Reader, reader

from study.core.files import sha256, write_json
from study.data.images.formats import INDEX  # noqa: F401  imports the formats before the clock of a case runs
from study.ensembles import results
from study.ensembles.halving import Halving
from study.experiment.definition import RunDefinition
from study.experiment.target import Target
from study.instruments import calibration, disturbance, phases, queue_usage
from study.instruments.background import COLUMNS as BACKGROUND
from study.instruments.operations import profile as operation_profile
from study.instruments.operations.profile import Operation
from study.instruments.operations.profile import Profile as OperationProfile
from study.instruments.power import gpu_evidence, summary, telemetry
from study.instruments.power.sampler import COLUMNS
from study.instruments.power.sampling import last_end_ns
from study.instruments.power.series import read_series
from study.instruments.timeline.run import communication_of
from study.instruments.timeline.summary import summarize
from study.launch import failure, launch, processes
from study.machines import machine_lock
from study.machines.batch_systems import jobs
from study.records import attempts, read_tests, record, targets, tidy, versions
from study.report.figures.timeline import QUANTITIES, Launch
from study.training import checkpoints
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
        write_json(made / calibration.FILE, calibration.summary([0.2, 0.3], [0.2, 0.4], 2))
        names = {"name": "n1", "cpu": "cpu", "cores": 2, "cores_allowed": 2, "memory_mb": 1000.0, "system": "Linux"}
        facts = json.loads((made / "provenance.json").read_text())
        facts |= {"host": names, "gpus": {"found": [], "reason": "none"}, "python": "3.11", "job": None, "hosts": []}
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


class Outcome(PartOfARun):
    file = "outcome.json"

    def read(self, path):
        found = self.record(path)
        return found["status"], found["runtime_s"], found["failure"]

    def expect(self, path):
        told = json.loads(path.read_text())
        return told["status"], told["runtime_s"], told["failure"]


@reader("outcome.json of the times to a target", "json", "study.records.targets:_times")
class OutcomeOfATarget(PartOfARun):
    file = "outcome.json"

    def prepare(self, folder):
        path = super().prepare(folder)
        self.found = record.make_record(self.folder)
        self.good = self.target()
        return path

    def target(self):
        return targets.to_target(self.folder, self.found, Target("validation_accuracy", 0.8, True, "a test"))

    def read(self, path):
        return self.target()["epochs_to_target"]

    def expect(self, path):
        return self.good["epochs_to_target"]


@reader("metrics.json", "json", "study.records.record:make_record", "study.instruments.power.summary:_used_gpus")
class Metrics(PartOfARun):
    file = "metrics.json"

    def read(self, path):
        found = self.record(path)
        tested = {name: found["quality"].get(f"test_{name}") for name in ("loss", "accuracy")}
        return ((found["memory"] or {}).get("peak_memory_mb"), tested, found["workload"], found["model"]["parameters"],
                found["resumed_after_epoch"], found["reading"])  # fmt: skip

    def expect(self, path):
        told = json.loads(path.read_text())
        known = told.get("processes") or told["ranks"]
        reads = {
            name: None if None in (sizes := [each[f"{name}_read_mb"] for each in known if f"{name}_read_mb" in each])
            else sum(sizes) for name in ("shared", "storage")
        }  # fmt: skip
        tested = {name: told["test"].get(name) for name in ("loss", "accuracy")}
        if "growth_sign_accuracy" in told["test"]:
            return NOTHING_TO_COMPARE
        peaks = [each["peak_memory_mb"] for each in known]
        return (None if None in peaks else max(peaks), tested, told["workload"], told["parameters"],
                told["resumed_after_epoch"], reads)  # fmt: skip


@reader("provenance.json", "json", "study.records.record:make_record", "study.records.versions:version",
        "study.instruments.timeline.run:_first_clock_offset_ns",
        "study.instruments.power.summary:_machines")  # fmt: skip
class Provenance(PartOfARun):
    file = "provenance.json"

    def read(self, path):
        found = self.record(path)
        versions.version(path.parent)
        communication_of(path.parent)
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


@reader("provenance.json of an earlier launch", "json", "study.launch.launch:_launched",
        "study.launch.launch:_checkpoints_count")  # fmt: skip
class EarlierLaunch(PartOfARun):
    file = "provenance.json"

    def prepare(self, folder):
        path = super().prepare(folder)
        (self.folder / "outcome.json").unlink()
        self.run = RunDefinition.read(self.folder / "run.yaml")
        self.facts = json.loads(path.read_text())
        return path

    def read(self, path):
        launch._launched(self.run, self.folder)
        return launch._checkpoints_count(self.folder, self.facts)

    def expect(self, path):
        try:
            told = json.loads(path.read_text())
            same = all(told[name] == self.facts[name] for name in ("training_code", "data"))
        except (ValueError, KeyError, TypeError, RecursionError):
            same = False
        return NOTHING_TO_COMPARE if same else False


@reader("run.yaml", "yaml", "study.experiment.definition:RunDefinition.read", "study.records.record:make_record")
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


@reader("history.csv", "csv", "study.records.record:_history", "study.records.targets:to_target",
        "study.instruments.timeline.run:communication_of")  # fmt: skip
class History(PartOfARun):
    file = "history.csv"

    def damage(self, content):
        return damage.csv_files(content)

    def read(self, path):
        found = self.record(path)
        (self.folder / "timeline.json.gz").write_bytes(gzip.compress(timelines.text(timelines.run()).encode()))
        communication_of(self.folder)
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


@reader(
    "telemetry.csv",
    "csv",
    "study.instruments.power.series:readings_in",
    "study.instruments.power.series:read_series",
    "study.core.csv_columns:read_columns",
    "study.records.record:make_record",
)
class Telemetry(PartOfARun):
    file = "telemetry.csv"

    def damage(self, content):
        return damage.csv_files(content)

    def read(self, path):
        series = read_series(path)
        found = self.record(path)
        edges = phases.read(self.folder / "phases.jsonl")
        summary.energy_until(self.folder, RunDefinition.read(self.folder / "run.yaml").machine, edges, START + 10**9)
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


@reader("sensors.json", "json", "study.instruments.samplers:of_hosts")
class Sensors(PartOfARun):
    file = "sensors.json"

    def read(self, path):
        found = self.record(path)
        summary._absent_sensors(self.folder, {"power_sensors": ["rapl"], "name": "local"})
        return found["power"]["energy_window_s"]


@reader("phases.jsonl", "json", "study.instruments.phases:_edge", "study.instruments.phases:read")
class Phases(PartOfARun):
    file = "phases.jsonl"

    def damage(self, content):
        return damage.jsonl_files(content)

    def read(self, path):
        found = self.record(path)
        failure.described(self.folder, "hang", "a test")
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


@reader("communication.json", "json", "study.records.record:_communication")
class Communication(PartOfARun):
    file = "communication.json"
    point = {"epochs": 2 * EPOCHS, "trace": True}

    def read(self, path):
        return self.record(path)["communication"]

    def expect(self, path):
        return json.loads(path.read_text())


@reader("calibration.json", "json", "study.records.record:_calibration")
class Calibration(PartOfARun):
    file = calibration.FILE

    def read(self, path):
        return self.record(path)["calibration"]

    def expect(self, path):
        told = json.loads(path.read_text())
        return {name: told[name] for name in ("calibration_s", "version", "host", "processes")}


@reader("autotune.csv", "csv", "study.experiment.autotuning:_tried")
class Autotune(PartOfARun):
    file = "autotune.csv"

    def prepare(self, folder):
        path = super().prepare(folder)
        trials = "".join(f"{50 + trial},{trial},{trial}\n" for trial in range(11))
        path.write_text(f"cycle_time_ms,tensor_fusion_threshold,score\n{trials}60,10,10\n")
        return path

    def damage(self, content):
        return damage.csv_files(content)

    def read(self, path):
        return self.record(path)["autotuning"]["trials"]


@reader("profile.pstats", "marshal", "study.instruments.profiler:summarize")
class Profile(PartOfARun):
    file = "profile.pstats"
    point = {"epochs": 2 * EPOCHS, "profile": True}

    def damage(self, content):
        return damage.cut(content, (b"\0", b"\xff", b"{", b"("))

    def read(self, path):
        return self.record(path)["profile"]["total_s"]


@reader("processes.json", "json", "study.launch.processes:told")
class Processes(PartOfARun):
    file = processes.FILE

    def prepare(self, folder):
        path = super().prepare(folder)
        each = {"name": "worker 0", "role": "worker", "index": 0, "host": None, "exit_code": 1, "is_fatal": False}
        write_json(path, {"processes": [{**each, "role": "chief", "is_fatal": True}, each], "lost": [1]})
        return path

    def read(self, path):
        processes.first_lost(self.folder)
        return processes.workers_lost(self.folder)

    def expect(self, path):
        told = json.loads(path.read_text())
        return sum(told["processes"][number]["role"] == "worker" for number in told["lost"])


@reader("record.json", "json", "study.records.record:read_record")
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


@reader(
    "timeline.json.gz",
    "gz",
    "study.instruments.timeline.events:Events._pieces",
    "study.instruments.timeline.events:Events._decoded",
    "study.instruments.timeline.events:Events._one_by_one",
)
class Timeline(Reader):
    def prepare(self, folder):
        path = folder / "timeline.json.gz"
        path.write_bytes(gzip.compress(timelines.text(timelines.run()).encode()))
        self.good = summarize(path, timelines.epoch_edges_ns()).summary
        return path

    def damage(self, content):
        events = json.loads(gzip.decompress(content))
        whole = damage.changed(events).map(lambda found: gzip.compress(json.dumps(found).encode()))
        numbers = damage.json_texts(events[:12]).map(gzip.compress)
        pieces = (b"},{", b"[", b'{"ph"', b"\xff", b'"ts": 1e400', b'"ts": Infinity', b"}")
        return whole | numbers | damage.gz_files(content, lambda plain: damage.cut(plain, pieces))

    def read(self, path):
        found = summarize(path, timelines.epoch_edges_ns()).summary
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
        found = summarize(path, timelines.epoch_edges_ns()).summary
        if found["lost_bytes"] + found["dropped_events"] or not isinstance(told, list):
            return NOTHING_TO_COMPARE
        return sum(isinstance(event, dict) for event in told)


class FileOfARank(Reader):
    """A file in the folder of a run's ranks, which is merged with those of the others."""

    def prepare(self, folder):
        self.folder = folder / "ranks"
        self.folder.mkdir()
        return self.folder / self.file


@reader("telemetry-n1-0123456789ab.json", "json", "study.instruments.power.telemetry:merge")
class FoundSensors(FileOfARank):
    file = "telemetry-n1-0123456789ab.json"

    def prepare(self, folder):
        path = super().prepare(folder)
        write_json(path, {"host": "n1", "rank": 0, "devices": ["rapl package-0"], "reasons": {"nvml": "no GPU"}})
        return path

    def damage(self, content):
        return damage.json_files(content)

    def read(self, path):
        telemetry.merge(self.folder, path.parents[1] / "telemetry.csv", path.parents[1] / "sensors.json")
        return json.loads((path.parents[1] / "sensors.json").read_text())

    def expect(self, path):
        return [json.loads(path.read_text())]

    def names(self, path):
        return path.name, str(self.folder)


@reader("telemetry-n1-0123456789ab.ends", "text", "study.instruments.power.sampling:last_end_ns")
class EndsOfProcesses(FileOfARank):
    file = "telemetry-n1-0123456789ab.ends"

    def prepare(self, folder):
        path = super().prepare(folder)
        path.write_text("".join(f"{5_000_000_000 + number}\n" for number in range(6)))
        return path

    def damage(self, content):
        return damage.cut(content, (b"\n", b"\xff", b"-", b"9" * 30, b"0", b"\r\n", b" ", "\u0665".encode()))

    def read(self, path):
        return last_end_ns(self.folder, "0123456789ab")

    def expect(self, path):
        whole = [line for line in path.read_bytes().split(b"\n")[:-1] if 0 < len(line) < 20]
        return max((int(line) for line in whole if not line.strip(b"0123456789")), default=None)


@reader("telemetry-n1-0123456789ab.csv", "csv", "study.instruments.power.telemetry:merge")
class MeasuredPower(FileOfARank):
    file = "telemetry-n1-0123456789ab.csv"

    def prepare(self, folder):
        path = super().prepare(folder)
        path.write_text(readings(ticks=6).replace("\n", "\r\n"))
        return path

    def damage(self, content):
        return damage.csv_files(content)

    def read(self, path):
        target = path.parents[1] / "telemetry.csv"
        target.unlink(missing_ok=True)
        telemetry.merge(self.folder, target, path.parents[1] / "sensors.json", {"n1": 1000})
        series = read_series(target) if target.exists() else []
        text = path.read_text("utf-8", "replace")
        for one in series:  # every value that is read stands in the file
            for value in one.power_w[~np.isnan(one.power_w)]:
                assert f"{value:.17g}"[:4] in text or str(value)[:3] in text or repr(value) in text, value
        return len(series) <= 40

    def expect(self, path):
        return True


@reader("phases-00000.jsonl", "json", "study.instruments.phases:_edge")
class PhasesOfARank(FileOfARank):
    file = "phases-00000.jsonl"

    def prepare(self, folder):
        path = super().prepare(folder)
        log = phases.PhaseLog(path, 0, "n1")
        for phase in ("load", "train"):
            with log(phase):
                pass
        return path

    def damage(self, content):
        return damage.jsonl_files(content)

    def read(self, path):
        merged = path.parents[1] / "phases.jsonl"
        phases.merge([path], merged, {"n1": 5})
        edges = phases.read(merged)
        phases.furthest_behind([edge for edge in edges if edge["phase"] in phases.ORDER])
        phases.durations(edges)
        results._end_of(self.folder, 0)
        return len(edges) <= len(path.read_bytes().splitlines())

    def expect(self, path):
        return True


@reader("results-00000.json", "json", "study.ensembles.results:assemble")
class MemberResults(FileOfARank):
    file = "results-00000.json"

    def prepare(self, folder):
        path = super().prepare(folder)
        member = {
            "number": 0,
            "failure": None,
            "begun_wall_ns": 1,
            "ended_wall_ns": 2,
            "received_bytes": 3,
            "samples_preprocessed": 4,
            "seed": 0,
            "learning_rate": 0.1,
            "batch_size": 5,
            "epochs": 1,
            "affinity": [0],
            "alone_from_block": None,
            "losses": [0.5],
            "quality": {"loss": 0.5},
        }
        rank = {"rank": 0, "host": "n1", "peak_memory_mb": 100.0, "final_weights_crc32": 7, "initial_weights_crc32": 8,
                "member": member}  # fmt: skip
        workload = {"train_samples": 10, "test_samples": 5, "features": 3, "samples_per_rank": 10}
        write_json(path, {"test": {"loss": 0.4}, "workload": workload, "parameters": 12, "ranks": [rank],
                          "resumed_after_epoch": None})  # fmt: skip
        (self.folder / "history-00000.csv").write_text("epoch,loss\n1,0.5\n")
        (self.folder / "phases-00001.jsonl").write_text("")
        return path

    def damage(self, content):
        return damage.json_files(content)

    def read(self, path):
        folder = path.parents[1]
        for name in ("members.csv", "metrics.json"):
            (folder / name).unlink(missing_ok=True)
        results.assemble(folder, 2)
        if not (folder / "metrics.json").exists():  # no member has finished
            return None
        return json.loads((folder / "metrics.json").read_text())["ranks"]

    def expect(self, path):
        told = json.loads(path.read_text())["ranks"]
        return told if any(each["member"]["failure"] is None for each in told) else None


@reader("usage-00000.csv", "csv", "study.instruments.queue_usage:read")
class UsageOfARank(FileOfARank):
    file = "usage-00000.csv"

    def prepare(self, folder):
        path = super().prepare(folder)
        rows = [f"0,n1,{START + place * 10**9},1.0,{fill},1.5,{place * 10**9}\n"
                for place, fill in enumerate(("0.25", "", "1.0"))]  # fmt: skip
        path.write_text("rank,host,begin_wall_ns,seconds,queue_fill,cores_used,begin_monotonic_ns\n" + "".join(rows))
        return path

    def damage(self, content):
        return damage.csv_files(content)

    def read(self, path):
        folder = path.parents[1]
        queue_usage.merge(path.parent, folder / queue_usage.FILE, {"n1": 5})
        for name in ("queue_fill", "cores_used"):
            QUANTITIES[name].read({}, folder, Launch(START, {"n1": 0}), 3.0)
        return len(queue_usage.read(folder / queue_usage.FILE))

    def expect(self, path):
        return len(rows_of(path))


@reader("background-n1.csv", "csv", "study.instruments.disturbance:merge", "study.instruments.disturbance:read",
        "study.instruments.disturbance:summarize", "study.instruments.power.gpu_evidence:_users")  # fmt: skip
class BackgroundOfAHost(FileOfARank):
    file = "background-n1.csv"

    def prepare(self, folder):
        path = super().prepare(folder)
        rows = [f"{START + place * 10**9},{place * 10**9},n1,1.0,2,1.5,{others},0.0,0.1,,0.0,0.0,0.0,3,,,cc1 0.10,"
                "0.5,0.0,,1410.0,NVML: GPU 0: lost,GPU-1 own\n"
                for place, others in enumerate(("0.25", "", "1.0"))]  # fmt: skip
        path.write_text(",".join(BACKGROUND) + "\n" + "".join(rows))
        return path

    def damage(self, content):
        return damage.csv_files(content)

    def read(self, path):
        folder = path.parents[1]
        (folder / disturbance.FILE).unlink(missing_ok=True)
        disturbance.merge(path.parent, folder / disturbance.FILE, {"n1": 5})
        disturbance.summarize(
            folder, [{"host": "n1", "monotonic_ns": 10**9}, {"host": "n1", "monotonic_ns": 2 * 10**9}]
        )
        there = (folder / disturbance.FILE).exists()
        text = path.read_text("utf-8", "replace")
        users = gpu_evidence.Users(folder, {}, {})
        assert all(each in text for each in users.own | users.others)
        for others in disturbance.read(folder / disturbance.FILE)["others_cpu_s"].dropna() if there else ():
            assert f"{others:g}"[:3] in text, "every value that is read stands in the file"
        return True

    def expect(self, path):
        return True


@reader("decision-000001.json", "json", "study.ensembles.halving:_content")
class HalvingDecision(Reader):
    def prepare(self, folder):
        self.halving = Halving(folder, folder, [1], members=3, own=0)
        self.halving._decide(1, {0: 0.5, 1: None, 2: 0.25})
        return folder / "decision-000001.json"

    def damage(self, content):
        return damage.json_files(content)

    def read(self, path):
        self.halving.has_stopped(1)
        return self.halving._staying(1)

    def expect(self, path):
        return json.loads(path.read_text())["staying"]


@reader("a checkpoint", "npz", "study.training.checkpoints:_read")
class Checkpoint(Reader):
    labels = {"fingerprint": "f", "version": 1}

    def prepare(self, folder):
        self.folder = folder
        self.arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.float32(1) * np.ones(4, np.float32)]
        self.names = ["kernel", "bias"]
        writer = checkpoints.Writer(checkpoints.folder_of(folder), 1, self.labels)
        writer.save(2, dict(zip(self.names, self.arrays, strict=True)), [{"loss": 0.5, "val_loss": 0.4}] * 2)
        writer.close()
        return folder / checkpoints.FOLDER / "epoch-000002.npz"

    def damage(self, content):
        return damage.npz_files(content)

    def read(self, path):
        shapes = {name: array.shape for name, array in zip(self.names, self.arrays, strict=True)}
        found = checkpoints.latest(checkpoints.folder_of(self.folder), self.labels, shapes)
        return None if found is None else [array.tolist() for array in found[1].values()]

    def expect(self, path):
        try:
            with np.load(path, allow_pickle=False) as archive:
                return (
                    NOTHING_TO_COMPARE if self.read(path) is None else [archive[f"array_{n}"].tolist() for n in (0, 1)]
                )
        except Exception:  # noqa: BLE001  damaged, in whatever way
            return None


@reader("the grace of a batch job", "text", "study.machines.batch_systems.jobs:_noted")
class Grace(Reader):
    def prepare(self, folder):
        jobs.FOLDER = folder / ".cluster"
        jobs.FOLDER.mkdir()
        path = jobs.FOLDER / "17.grace"
        path.write_text("1700000000.5 1700000001.25")
        return path

    def damage(self, content):
        return damage.cut(content, (b" ", b"nan", b"\xff", b"\0", b"1e9", b"x"))

    def read(self, path):
        return jobs._after_grace("17", "a test")

    def expect(self, path):
        return jobs.RUNNING


@reader("the state of a batch job", "json", "study.machines.batch_systems.jobs:_known")
class JobState(Reader):
    def prepare(self, folder):
        jobs.FOLDER = folder / ".cluster"
        jobs.FOLDER.mkdir()
        path = jobs.FOLDER / "17.json"
        (jobs.FOLDER / "job").mkdir()
        (jobs.FOLDER / "job" / "exit_code").write_text("0\n")
        write_json(path, {"scheduler": "lsf", "folder": str(jobs.FOLDER / "job"), "line": ["bsub"], "watched_by": None})
        return path

    def damage(self, content):
        return damage.json_files(content)

    def read(self, path):
        known = jobs._known("17")
        return known and known["scheduler"]

    def expect(self, path):
        try:
            told = json.loads(path.read_text())
        except (ValueError, RecursionError):
            return None
        return NOTHING_TO_COMPARE if self.read(path) is None else told["scheduler"]


@reader("the note of who holds a machine's lock", "json", "study.machines.machine_lock:_holder")
class LockHolder(Reader):
    def prepare(self, folder):
        path = folder / machine_lock.NAME
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        machine_lock._note(self.descriptor, "a test", 60.0)
        return path

    def damage(self, content):
        return damage.json_files(content)

    def read(self, path):
        return machine_lock._holder(self.descriptor).get("until_s")

    def expect(self, path):
        try:
            until_s = float(json.loads(path.read_bytes())["until_s"])
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None
        return until_s if math.isfinite(until_s) else None


@reader("operations.json.gz", "json", "study.instruments.operations.profile:read")
class ProfileOfOperations(Reader):
    def prepare(self, folder):
        path = folder / "operations.json.gz"
        steps = tuple((START + at * 1000, START + (at + 1) * 1000) for at in range(EPOCHS))
        found = tuple(
            Operation(name, kind, lane, begin + 10 * place, begin + 10 * place + 7, "layer")
            for begin, _ in steps
            for place, (name, kind, lane) in enumerate([("mm", "compute", "main"), ("send", "communication", "gloo")])
        )
        operation_profile.write(path, OperationProfile("by hand", "cpu", steps, ((START, START + 5),), found))
        return path

    def damage(self, content):
        told = json.loads(gzip.decompress(content))
        whole = damage.changed(told).map(lambda found: gzip.compress(json.dumps(found).encode()))
        return whole | damage.json_texts(told).map(gzip.compress) | damage.gz_files(content)

    def read(self, path):
        found = operation_profile.read(path).operations
        return [[each.begin_ns, each.end_ns] for each in found]

    def expect(self, path):
        told = json.loads(gzip.decompress(path.read_bytes()))
        zero = told["zero_monotonic_ns"]
        return [[zero + begin, zero + begin + length] for _, _, begin, length in told["operations"]]


@reader("attempts.csv", "csv", "study.records.attempts:sentences")
class Attempts(Reader):
    def prepare(self, folder):
        path = folder / attempts.FILE
        rows = [f"runs/{block}/{number}/record.json,{block},{number},{number == 2},ok,{number == 1},other load,1.5"
                for block in range(1, 4) for number in (1, 2)]  # fmt: skip
        path.write_text("\n".join([",".join(attempts.KINDS), *rows]) + "\n")
        return path

    def damage(self, content):
        return damage.csv_files(content)

    def read(self, path):
        return [sentence.split(" was run again")[0] for sentence in attempts.sentences(path.parent)]

    def expect(self, path):
        return [f"Block {block}" for block in sorted({int(float(row["block"])) for row in rows_of(path)})]


@reader("storage.csv", "csv", "study.records.read_tests:_measured")
class Storage(Reader):
    def prepare(self, folder):
        path = read_tests.file(folder)
        path.write_text(
            "storage,tool,page_cache,gb_per_s,reason\n"
            + "".join(
                f"shared,fio,{cache},{rate},\nlocal,fio,{cache},,no room\n"
                for cache in ("cold", "warm")
                for rate in (1.5, 2.25)
            )
        )
        return path

    def damage(self, content):
        return damage.csv_files(content)

    def read(self, path):
        found = read_tests._measured(path.parent)
        return {name: each["read_test_cold_gb_per_s"] for name, each in found.items()}

    def expect(self, path):
        rates = {}
        for row in rows_of(path):
            known = rates.setdefault(row["storage"], [])
            if row["page_cache"] == "cold" and row["gb_per_s"]:
                known.append(float(row["gb_per_s"]))
        if any(len(each) > 1 for each in rates.values()):
            return {name: read_tests.summarize(each).mean for name, each in rates.items()}
        return {name: each[0] if each else math.nan for name, each in rates.items()}


@reader("events of a program", "jsonl", "study.workloads.command.events:parsed",
        "study.training.program:Program._read_events")  # fmt: skip
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
            if (event := events.parsed(line, is_marked=False)) and events.rank_of(event, 0) == 0:
                progress.take(event, events.moment(event))
        return

    def names(self, path):
        return ("event", "epoch")
