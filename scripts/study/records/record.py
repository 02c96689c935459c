"""The record of a run, made from its directory; it can be made again without training again."""

from __future__ import annotations

import functools
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.communication import roles
from study.core import code_version, fields, validation
from study.core.cores import compute_usable_cores
from study.core.csv_columns import Columns, read_columns
from study.core.csv_files import FINITE, NUMBER, WHOLE
from study.core.errors import StudyError
from study.core.files import read_json, read_last_change_ns, sha256, to_finite_or_none
from study.experiment import identity, schemas
from study.experiment.definition import RunDefinition
from study.instruments import disturbance, phases, profiler
from study.instruments.power import summary
from study.machines import host_capabilities, launchers
from study.machines.run_layout import PARAMETER_SERVER
from study.records import checks, ensemble, program_evidence
from study.records.nodes import hosts_of_ranks, unseen_nodes
from study.workloads import command
from study.workloads.command import samples

SCHEMA_VERSION = 8
EPOCHS = {"epoch": WHOLE, "time_s": FINITE, "steps_s": FINITE, "learning_rate": NUMBER}  # columns of history.csv
CPU_LIMITED = 0.9
SHARE_STEP = 0.05  # to which the share of the samples that a command trains is rounded
DERIVED = ("communication.json", "activity.csv")  # read from a traced run's timeline, and can be made again
NO_MODE = "none"  # memory mode of a machine whose file declares none; not NaN, by which tables could not group
# Of the record's `reading`, and what they are in metrics.json and in runs.csv.
READING = {each.name: str(each.column) for each in fields.find_section("reading").fields}
OF_COPIES = ("staged", "node", "node_storage")  # those that a run without copies on its nodes does not have


@functools.cache
def code() -> str:
    """The digest of the code that makes records."""
    return code_version.digest_code("study.records.renewal")


@functools.cache
def schema() -> dict[str, Any]:
    """The schema of a record, from the declarations of its fields and of the grid keys."""
    declared = fields.build_record_schema()
    declared["properties"]["parameters"] = schemas.build_record_schema()
    return declared


def _system(provenance: dict[str, Any]) -> str:
    """The software below the packages: ``Python 3.11.7, Linux-6.1.0-x86_64, table parser compiled``."""
    parts = {"Python": provenance.get("python"), "": provenance["host"].get("system"),
             "table parser": provenance.get("table_parser")}  # fmt: skip
    return ", ".join(f"{name} {value}".strip() for name, value in parts.items() if value)


def _hardware(run: RunDefinition, provenance: dict[str, Any]) -> str | None:
    """Each kind of host that had ranks, and the launching host's GPUs: ``Xeon, 2 cores; 4 x V100``.

    None where that is a service node, without ranks: nobody asked the others.
    """
    if launchers.get_launcher(run.machine).from_a_service_node:
        return None
    hosts = provenance.get("hosts") or [provenance["host"]]
    kinds = dict.fromkeys(f"{host.get('cpu') or 'unknown CPU'}, {compute_usable_cores(host):g} cores" for host in hosts)
    names = [gpu["name"] for gpu in (provenance.get("gpus") or {}).get("found") or ()]
    return "; ".join([*sorted(kinds), *(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))])


def make_record(folder: str | Path, keys: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The run record of a run's directory, as a dict that fits `schema`.

    Times are in seconds. A phase has the times of the slowest rank, the fastest rank and rank 0.

    Args:
        folder: the run's directory. Of a traced run it has the summary of its timeline.
        keys: of a command's YAML, by which its output is read (`command.select_reading`); None for those of the run.

    Raises:
        StudyError: a file of the run is missing or was changed.
    """
    folder = Path(folder)
    outcome = validation.load_valid_json(folder / "outcome.json", "outcome")
    verify(folder, outcome["files"])
    run = _definition(folder)
    validation.validate(
        identity.fill_defaults(run.parameters), schemas.build_record_schema(), f"{folder / 'run.yaml'}: parameters"
    )
    provenance = validation.load_valid_json(folder / "provenance.json", "provenance")
    ok = outcome["status"] == "ok"
    metrics = validation.load_valid_json(folder / "metrics.json", fields.metrics_schema()) if ok else {}
    is_program = ok and command.is_command(run.benchmark)
    if is_program:
        own_keys = command.select_reading(run.benchmark)
        keys = own_keys if keys is None else keys
        if keys != own_keys:
            output = program_evidence.read_stored_output(folder, run, keys, metrics["program"]["output"])
            metrics["program"] |= {"output": output, "metrics": output["values"]}
        epoch = _count_epoch(run, metrics["program"], keys)
        metrics["workload"] |= {"train_samples": epoch.train_samples, "samples_per_rank": epoch.samples_per_rank}
        metrics["program"] |= {"steps_per_epoch": epoch.steps, "epoch": epoch}
    history = _history(folder, run, metrics) if ok else None
    edges = phases.read_edges(folder / "phases.jsonl")
    record = {
        "schema_version": SCHEMA_VERSION,
        "machine": run.machine["name"],
        "memory_mode": run.machine.get("memory_mode") or NO_MODE,
        "parameters": identity.fill_defaults(run.parameters),
        "derived": vars(run.derived),
        "block": run["repeat"],
        "attempt": run.attempt,
        "benchmark": {key: run.benchmark[key] for key in ("learning_rate", "optimizer", "loss")},
        "workload": metrics["workload"] if ok else None,
        "unmatched": metrics.get("unmatched", {}) if ok else {},
        "data_mb": _data_mb(run, provenance),
        "status": outcome["status"],
        "failure": outcome["failure"],
        "workers_lost": outcome["workers_lost"],
        "unproven": _explain_unproven(metrics["program"], keys or {}) if is_program else None,
        "processes": _processes(run, metrics) if ok else [],
        "runtime_s": outcome["runtime_s"],
        "resumed_after_epoch": metrics["resumed_after_epoch"] if ok else None,
        "phases": _phase_times(edges),
        "training": _training_or_told(run, history, metrics) if ok else None,
        "quality": _quality(history, metrics) if history is not None else None,
        "reading": _reading(metrics) if ok else None,
        "traffic": _traffic(run, metrics) if ok else None,
        "allreduce_sweep": _sweep(run, metrics) if ok else None,
        "checkpoints": metrics.get("checkpoints"),
        "ensemble": ensemble.section(metrics, edges) if ok else None,
        "memory": _memory(run, metrics) if ok else None,
        "power": _power(folder, run, edges),
        "communication": _communication(folder, run),
        "profile": profiler.summarize(folder / "profile.pstats") if (folder / "profile.pstats").exists() else None,
        "model": _model(metrics) if ok and metrics["parameters"] else None,
        "program": _program(run, metrics, edges, keys or {}) if is_program else None,
        "provenance": {
            "training_code": provenance["training_code"],
            "loader_sensor_code": provenance["loader_sensor_code"],
            "fingerprint": run.fingerprint,
            "record_code": code(),
            "git_commit": provenance["git"]["commit"],
            "git_dirty": provenance["git"]["dirty"],
            "packages": provenance["packages"],
            "host": provenance["host"]["name"],
            "oversubscribed": _is_oversubscribed(run, provenance, metrics),
            "timed_alone": (provenance.get("timed_alone") or {}).get("held"),
            "cpu_quota_cores": provenance["host"].get("cpu_quota_cores"),
            "system": _system(provenance),
            "hardware": _hardware(run, provenance),
            "started_wall_ns": outcome["started_wall_ns"],
            "started_monotonic_ns": outcome["started_monotonic_ns"],
            "boot_id": outcome["boot_id"] or provenance["host"].get("boot_id"),
            "data_checksum": identity.compute_fingerprint(
                {file: each["source"] for file, each in provenance["data"].items()}
            ),
            "session": provenance["session"],
            "batch_job": (provenance.get("job") or {}).get("id"),
            "steering": provenance["steering"],
        },
        "communication_libraries": metrics.get("communication_libraries", {}),
        "background": disturbance.summarize(folder, edges, outcome.get("stood_still_s", 0.0)),
        "hosts": provenance.get("hosts", []),
        **hosts_of_ranks(run, provenance, edges),
        "job_options": (provenance.get("job") or {}).get("options"),
        "files": outcome["files"] | {name: sha256(folder / name) for name in DERIVED if (folder / name).exists()},
    }
    record = checks.add_check_results(record, checks.Evidence(record, metrics, provenance))
    validation.validate(record, schema(), f"the record of {folder}")  # of one record, faster than compiling its schema
    return record


def read_record(path: str | Path) -> dict[str, Any]:
    """Read a record and check its version and schema; parameters that it lacks get their defaults."""
    return as_read(read_json(path), path)


def as_read(record: Any, path: str | Path) -> dict[str, Any]:
    """As `read_record`, from the content of the file at ``path``."""
    version = record.get("schema_version") if isinstance(record, dict) else None
    if version != SCHEMA_VERSION:
        raise StudyError(
            f"{path}: a record of schema version {version}, this code reads {SCHEMA_VERSION}; copy its run's whole "
            "folder, from which it is made again"
        )
    _check_read(record, str(path))
    return complete_parameters(record)


def complete_parameters(record: dict[str, Any]) -> dict[str, Any]:
    """A record that fits the schema, with the defaults of the parameters that it lacks."""
    return {**record, "parameters": identity.fill_defaults(record["parameters"])}


@functools.cache
def _fits() -> Callable[[Any], bool]:
    """The schema as a function: tables of large studies read thousands of records, which takes jsonschema minutes."""
    import fastjsonschema  # here: the end of a run reads no record

    compiled = fastjsonschema.compile(schema(), use_default=False)

    def fits(record: Any) -> bool:
        try:
            compiled(record)
        except fastjsonschema.JsonSchemaException:
            return False
        return True

    return fits


def _check_read(record: dict[str, Any], where: str) -> None:
    """Raise `StudyError` for a record that violates the schema; the message is of `validation.validate`.

    `files.read_json` has read it, which refuses numbers that JSON does not have.
    """
    if not _fits()(record):
        validation.validate(record, schema(), where)


def _definition(folder: Path) -> RunDefinition:
    """``run.yaml``. One that was damaged while the run went on has the checksum in ``outcome.json``."""
    try:
        return RunDefinition.read(folder / "run.yaml")
    except StudyError as error:
        raise StudyError(f"{error}; delete {folder} to run again") from None


def verify(folder: Path, files: dict[str, str], since_ns: int | None = None) -> None:
    """Raise `StudyError` if a run's file is missing or no longer has the checksum in ``files``.

    since_ns: files that were last written before this time (ns since 1970) are taken to be unchanged; None for none.
    """
    place = str(folder)
    for name, checksum in files.items():
        path = f"{place}/{name}"  # a text: of thousands of runs, making a Path takes longer than looking at its file
        try:
            was_changed = (since_ns is None or read_last_change_ns(path) >= since_ns) and sha256(path) != checksum
        except (OSError, ValueError):  # ValueError: a null character
            if (folder / name).exists():
                raise
            raise StudyError(f"{folder / name}: is missing, but the run wrote it; {_remedy(folder, name)}") from None
        if was_changed:
            raise StudyError(f"{folder / name}: was changed after the run; {_remedy(folder, name)}")


def read_provenance(folder: Path) -> Any:
    """The content of a run's ``provenance.json``, unchecked; raises `StudyError`, with the remedy, if it is no JSON."""
    try:
        return read_json(folder / "provenance.json")
    except (OSError, StudyError):
        remedy = _remedy(folder, "provenance.json")
        raise StudyError(f"{folder / 'provenance.json'}: is missing or damaged; {remedy}") from None


def _remedy(folder: Path, name: str) -> str:
    """What to do about a file of a run that is missing or was changed."""
    if name in DERIVED:
        return f"restore it or delete {folder / 'record.json'} to make both again"
    return f"restore it or delete {folder} to run again"


def _has_epochs(run: RunDefinition, metrics: dict[str, Any]) -> bool:
    """Whether a run told its epochs: not one that measured a throughput only, nor a program that tells none."""
    return run.parameters.get("measure", "train") == "train" and metrics.get("program", {}).get("has_epochs", True)


def _history(folder: Path, run: RunDefinition, metrics: dict[str, Any]) -> Columns:
    """``history.csv`` of a run that came to its end."""
    measured = [name for tested in metrics["test"] for name in (tested, f"val_{tested}")]
    kinds = (EPOCHS if _has_epochs(run, metrics) else {}) | dict.fromkeys(measured, NUMBER)
    path, again = folder / "history.csv", f"delete {folder} to run again"
    history = read_columns(path, kinds, remedy=again)
    if _has_epochs(run, metrics):
        trained = metrics.get("program", {}).get("epochs") or run.derived.epochs_per_rank
        _check_epochs(history, run, trained, path, again)
    if measured and not history.rows and _has_epochs(run, metrics):
        raise StudyError(f"{path}: has no epoch; {again}")
    return history


def _check_epochs(history: Columns, run: RunDefinition, trained: int, path: Path, again: str) -> None:
    expected, numbers = list(range(1, trained + 1)), history["epoch"].tolist()
    if numbers != expected:
        raise StudyError(f"{path}: epochs {numbers}, expected 1 to {expected[-1]}; {again}")
    times = [history[name] for name in ("time_s", "steps_s")]
    if command.is_command(run.benchmark):  # its clock may be coarse (`study.records.program_times`), its rate unknown
        return
    if not all((each > 0).all() for each in times) or np.isnan(history["learning_rate"]).any():
        raise StudyError(f"{path}: an epoch has no time or no learning rate; {again}")


def _communication(folder: Path, run: RunDefinition) -> dict[str, Any] | None:
    """The summary of the timeline (`study.records.renewal`); None for a run that was not traced."""
    return read_json(folder / "communication.json") if run["trace"] else None


def _data_mb(run: RunDefinition, provenance: dict[str, Any]) -> dict[str, float]:
    """Size (MB) of each file of the dataset by its name in the benchmark's YAML."""
    if missing := sorted(run.data.keys() - provenance["data"].keys()):
        raise StudyError(f"provenance.json: data: the key {missing[0]!r} is missing; delete the run's folder")
    return {file: provenance["data"][file]["source"]["bytes"] / 1e6 for file in run.data}


def _phase_times(edges: list[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    times = phases.compute_durations(edges)
    return {
        phase: {
            "slowest_s": max(times[phase].values()),
            "fastest_s": min(times[phase].values()),
            "rank_0_s": times[phase].get(0),
        }
        for phase in (*phases.PHASES, *phases.PARTS)
        if phase in times
    }


def _training_or_told(run: RunDefinition, history: Columns | None, metrics: dict[str, Any]) -> dict[str, Any] | None:
    """The record's ``training``; of a program without epochs, what patterns found in its output, or None.

    Epochs are measured for the whole run; a pattern has the last number that the program printed.
    """
    patterns = metrics.get("program", {}).get("metrics", {})
    values = {name: value for name, value in patterns.items() if name in command.OF_TRAINING and value is not None}
    if history is not None and _has_epochs(run, metrics):
        return _training(run, history, metrics)
    nothing = {each.name: None for each in fields.find_section("training").fields if not each.derived}
    return nothing | values if values else None


def _training(run: RunDefinition, history: Columns, metrics: dict[str, Any]) -> dict[str, Any]:
    """Time per epoch and throughput, from rank 0's epochs.

    ``time_per_epoch_s``: the mean over all epochs including the first. The ICPP paper does not define its own.
    ``time_per_epoch_steady_s``: the median without the first, which builds the graph; None with one epoch.
    """
    times = history["time_s"]
    return {
        "time_per_epoch_s": times.mean(),
        "time_per_epoch_steady_s": np.median(times[1:]) if len(times) > 1 else None,
        "throughput_samples_per_s": _throughput(run, times, metrics),
        "learning_rate_used": to_finite_or_none(history["learning_rate"][-1]),
        **_summarize_steps(run, history, metrics),
        "first_epoch_excess_s": _first_epoch_excess(history),
        **_compute_per_step(metrics),
        **_step_times(metrics),
        "input_wait_per_step_s": max((w for w in _input_waits(metrics) if w is not None), default=None),
    }


def _count_epoch(run: RunDefinition, program: dict[str, Any], keys: Mapping[str, Any]) -> samples.Epoch:
    """The samples and steps of an epoch of a command. keys: by which its output is read."""
    spec = {**run.benchmark, "drop_last": keys.get("drop_last")}
    return samples.count_epoch(
        spec, run.parameters, run.ranks, run.derived.batch_size_per_rank, program.get("sizes", {})
    )


def _explain_unproven(program: dict[str, Any], keys: Mapping[str, Any]) -> str | None:
    """Why nothing shows that a command did its work, or how much; None if it is shown."""
    whys = [program_evidence.explain_unproven(program, keys), program["epoch"].doubt]
    return "; ".join(filter(None, whys)) or None


def _throughput(run: RunDefinition, times: NDArray[Any], metrics: dict[str, Any]) -> float | None:
    """Samples per second of all ranks, with validation, until the last epoch of the slowest has ended.

    Where a command's samples are not known, what its pattern found, or None.

    Of an ensemble, the samples are those of all members, and the time is the longest of theirs.
    times: of the epochs in ``history.csv``.
    """
    if metrics["workload"]["samples_per_rank"] is None:
        value: float | None = metrics["program"]["metrics"].get("throughput_samples_per_s")
        return value
    number = metrics["workload"]["samples_per_rank"] * run.emulated_ranks * len(times)
    if "member" not in metrics["ranks"][0]:
        return number * run.ranks / times.sum() if times.sum() and number else None
    return number * run.ranks / max(rank["member"]["epochs_s"] for rank in metrics["ranks"])


def _summarize_steps(run: RunDefinition, history: Columns, metrics: dict[str, Any]) -> dict[str, Any]:
    """Steps of an epoch, and times without validation: medians over the epochs after the first.

    A program whose batch size is not known makes an unknown number of steps; a pattern may tell the time of one.
    """
    seconds = np.median(history["steps_s"][1:] if history.rows > 1 else history["steps_s"])
    if not _knows_steps(run, metrics):
        step_s = metrics["program"]["metrics"].get("time_per_step_s")
        return {"epoch_steps_s": seconds, "time_per_step_s": step_s, "steps_per_epoch": None}
    steps = _steps(run, metrics)
    return {"epoch_steps_s": seconds, "time_per_step_s": seconds / steps, "steps_per_epoch": steps}


def _knows_steps(run: RunDefinition, metrics: Mapping[str, Any]) -> bool:
    return not command.is_command(run.benchmark) or bool(metrics["program"]["steps_per_epoch"])


def _list_epoch_columns(run: RunDefinition, metrics: Mapping[str, Any]) -> list[str]:
    """Columns that a program's epochs give: of numbers of samples or steps only where these are known; else none."""
    if not metrics["program"]["has_epochs"]:
        return []
    if metrics["workload"]["samples_per_rank"] is None:
        return ["time_per_epoch_s"]
    return [name for name in command.OF_TRAINING if name != "time_per_step_s" or _knows_steps(run, metrics)]


def _first_epoch_excess(history: Columns) -> float | None:
    """Steps of the first epoch minus the median of the later ones; None with one epoch."""
    if history.rows == 1:
        return None
    return history["steps_s"][0] - np.median(history["steps_s"][1:])


def _compute_per_step(metrics: dict[str, Any]) -> dict[str, float | None]:
    """A rank's time from its batch to its own gradients: of the slowest and the fastest rank; None if not measured."""
    seconds = [rank.get("compute_per_step_s") for rank in metrics["ranks"]]
    measured = [] if None in seconds else seconds
    return {
        "compute_per_step_slowest_s": max(measured, default=None),
        "compute_per_step_fastest_s": min(measured, default=None),
    }


def _step_times(metrics: dict[str, Any]) -> dict[str, float | None]:
    """Median, 95th percentile and jitter of rank 0's steps; None if they are not measured."""
    step_times = metrics["ranks"][0].get("step_times") or {}
    return {f"step_time_{name}": step_times.get(name) for name in ("median_s", "p95_s", "jitter")}


def _input_waits(metrics: dict[str, Any]) -> list[float | None]:
    """Each rank's wait for a batch, median of the epochs; None if its samples are not read in training."""
    return [rank.get("input_wait_per_step_s") for rank in metrics["ranks"]]


def _steps(run: RunDefinition, metrics: dict[str, Any]) -> int:
    """Steps of an epoch; of an ensemble those of the member whose epochs are in ``history.csv``."""
    return _steps_of(metrics["ranks"][0], run, metrics)


def _steps_of(rank: dict[str, Any], run: RunDefinition, metrics: dict[str, Any]) -> int:
    """Steps of an epoch of a rank; members may have batch sizes of their own."""
    if command.is_command(run.benchmark):
        return metrics["program"]["steps_per_epoch"] or 0
    member = rank.get("member", {})
    return -(-metrics["workload"]["samples_per_rank"] // member.get("batch_size", run.derived.batch_size_per_rank))


def _quality(history: Columns, metrics: dict[str, Any]) -> dict[str, float | None]:
    """Loss and metrics of rank 0's last epoch, for training and validation, and of the evaluation on the test set.

    A value that is not finite becomes None.
    """
    values: dict[str, float] = {}
    for name, tested in metrics["test"].items():
        own = {} if not history.rows else {name: history[name][-1], f"validation_{name}": history[f"val_{name}"][-1]}
        values |= {**own, f"test_{name}": tested}
    quality = {name: to_finite_or_none(value) for name, value in values.items()}
    patterns = metrics.get("program", {}).get("metrics", {})
    missing = [name for name in patterns if name not in command.OF_TRAINING and quality.get(name) is None]
    return quality | {name: to_finite_or_none(patterns[name]) for name in missing}


def _all(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """All processes of a run: its ranks, and a parameter server's chief and servers."""
    return metrics.get("processes") or metrics["ranks"]


def _reading(metrics: dict[str, Any]) -> dict[str, float | None]:
    """MB that all ranks read of shared storage, copied to their nodes and read of the copies; None if not counted.

    A process that loads no files has no such value, and no process of a run without copies has those of copies.
    """
    sizes_by_name = {name: [each[key] for each in _all(metrics) if key in each] for name, key in READING.items()}
    return {name: _sum(sizes) if sizes or name not in OF_COPIES else None for name, sizes in sizes_by_name.items()}


def _processes(run: RunDefinition, metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """The processes of a parameter server, with their bytes per step of one worker."""
    return [
        {name: each[name] for name in ("process", "role", "index", "host", "peak_memory_mb", "cpu_busy")}
        | {f"{way}_mb_per_step": _mb(each[f"tcp_{way}_bytes"], _steps(run, metrics)) for way in ("sent", "received")}
        for each in metrics.get("processes", [])
    ]


def _mb(sent: float | None, steps: int) -> float | None:
    return None if sent is None else sent / steps / 1e6


def _traffic(run: RunDefinition, metrics: dict[str, Any]) -> dict[str, Any] | None:
    """TCP megabytes per step, means over the ranks, and how busy the busiest host's cores were while training.

    ``gradient_mb``: size of a step's gradients, float32; a ring allreduce sends 2 (N - 1) / N times that per rank. None
    if sparse ones are sent, which are gathered: their size is that of the rows that a batch used. None of members with
    different networks too.

    An ensemble that shares its input has no such bytes: batches are sent ahead, also outside the steps of an epoch.

    ``cpu_limited``: they were busy for at least `CPU_LIMITED` of the time, so the network may not have been the limit.
    None for a command, whose bytes are not counted.
    """
    ranks = metrics["ranks"]
    if "cpu_busy" not in ranks[0]:
        return None
    busy = max((each["cpu_busy"] for each in _all(metrics) if each["cpu_busy"] is not None), default=None)
    shares = run.parameters.get("input_sharing", "duplicated") != "duplicated"
    is_sparse = any(rank.get("sparse_gradients") for rank in ranks)

    def per_step(way: str) -> float | None:
        known = [rank for rank in ranks if rank[f"tcp_{way}_bytes"] is not None]
        if shares or not known:
            return None
        return statistics.mean(rank[f"tcp_{way}_bytes"] / _steps_of(rank, run, metrics) for rank in known) / 1e6

    return {
        "gradient_mb": None if is_sparse else 4 * metrics["trainable_parameters"] / 1e6,
        "tcp_sent_mb_per_step": per_step("sent"),
        "tcp_received_mb_per_step": per_step("received"),
        "cpu_busy": busy,
        "cpu_limited": None if busy is None else busy >= CPU_LIMITED,
        **_servers(_processes(run, metrics)),
    }


def _servers(processes: list[dict[str, Any]]) -> dict[str, float | None]:
    """Bytes of all parameter servers together, and the share of the busiest one; None without servers."""
    servers = [each for each in processes if each["role"] == "server"]
    ways = [[each[f"{way}_mb_per_step"] for each in servers] for way in ("sent", "received")]
    if not servers or any(None in way for way in ways):
        return dict.fromkeys(("servers_sent_mb_per_step", "servers_received_mb_per_step", "busiest_server_share"))
    totals = [sent + received for sent, received in zip(*ways, strict=True)]
    return {
        "servers_sent_mb_per_step": sum(ways[0]),
        "servers_received_mb_per_step": sum(ways[1]),
        "busiest_server_share": max(totals) / sum(totals) if sum(totals) else None,
    }


def _sweep(run: RunDefinition, metrics: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Median time and bus bandwidth by message size: bytes x 2 (N - 1) / N / time, which a ring allreduce sends."""
    if not metrics.get("allreduce_sweep"):
        return None
    sent = 2 * (run.ranks - 1) / run.ranks
    return [
        {
            "bytes": each["bytes"],
            "repeats": len(each["seconds"]),
            "median_s": statistics.median(each["seconds"]),
            "busbw_gb_per_s": each["bytes"] * sent / statistics.median(each["seconds"]) / 1e9,
        }
        for each in metrics["allreduce_sweep"]
    ]


def _sum(values: list) -> float | None:
    return None if None in values else sum(values)


def _program(
    run: RunDefinition, metrics: dict[str, Any], edges: list[dict[str, Any]], keys: Mapping[str, Any]
) -> dict[str, Any]:
    """What is of a command only. keys: by which its output was read."""
    program, unseen = metrics["program"], unseen_nodes(run)
    whys = [program["reason"], *program_evidence.explain_metrics(program, _list_epoch_columns(run, metrics))]
    whys += [_no_phases(edges), *program["epoch"].remarks, unseen, _no_steps(run, metrics), _no_memory(metrics)]
    whys += program_evidence.list_remarks(program)
    return {
        "cpu_time_s": None if unseen else program["cpu_s"],
        "processes": None if unseen else program.get("processes"),
        "events": program["events"],
        "epochs": program["epochs"],
        "rank": program["rank"],
        "trained_share": round(program["epoch"].share / SHARE_STEP) * SHARE_STEP,
        "reason": "; ".join(filter(None, whys)) or None,
        "read_with": dict(keys),
    }


def _no_phases(edges: list[dict[str, Any]]) -> str | None:
    """Why the times of the phases of a program are empty, or None if it told some."""
    if not phases.has_no_phases(phases.compute_durations(edges)):
        return None
    return "startup_s, other_s and the times of phases: the program reported no phase; see docs/commands.md, events"


def _no_steps(run: RunDefinition, metrics: Mapping[str, Any]) -> str | None:
    """Why the steps of a program that told its epochs are not known, or None."""
    program = metrics["program"]
    if not program.get("has_epochs") or _knows_steps(run, metrics):
        return None
    if metrics["workload"]["samples_per_rank"] is None:
        return "steps, throughput: the number of samples is not known; give workload in the benchmark's file"
    has_time = program["metrics"].get("time_per_step_s") is not None
    names = "steps_per_epoch" if has_time else "steps_per_epoch, time_per_step_s"
    return (
        f"{names}: the batch size is not known; give batch_size in the benchmark's file, or hand it over "
        "({batch_size_per_rank})"
    )


def _no_memory(metrics: Mapping[str, Any]) -> str | None:
    """Why the memory of a program is not known, or None; see `study.training.program`."""
    if all(each["peak_memory_mb"] is not None for each in metrics["ranks"]):
        return None
    return "peak_memory_mb: the program ended too soon after its start to be looked at"


def _memory(run: RunDefinition, metrics: dict[str, Any]) -> dict[str, Any] | None:
    """The record's ``memory``; None where that of some process is not known, or of one of several nodes only."""
    if unseen_nodes(run):
        return None
    peaks = [each["peak_memory_mb"] for each in _all(metrics)]
    return None if None in peaks else {"peak_memory_mb": max(peaks)}


def _power(folder: Path, run: RunDefinition, edges: list[dict[str, Any]]) -> dict[str, Any]:
    if reason := unseen_nodes(run):
        return summary.make_unmeasured(run.machine, run.ranks, reason)
    return summary.summarize(folder, run.machine, run.ranks, edges)


def _model(metrics: dict[str, Any]) -> dict[str, Any]:
    """What a run trained, and a checksum of rank 0's weights, by which runs are compared.

    Of an ensemble, the weights of the first member that has trained all epochs.
    """
    return {
        "parameters": metrics["parameters"],
        "ranks_agree": _ranks_agree(metrics),
        "final_weights_crc32": metrics["ranks"][0]["final_weights_crc32"],
    }


def _ranks_agree(metrics: dict[str, Any]) -> bool | None:
    """Whether all ranks ended with the same weights; None where they lie on servers only, and of an ensemble."""
    if "member" in metrics["ranks"][0]:
        return None
    checksums = {rank["final_weights_crc32"] for rank in metrics["ranks"]}
    return None if None in checksums else len(checksums) == 1


def _is_oversubscribed(
    run: RunDefinition, provenance: dict[str, Any], metrics: Mapping[str, Any] = MappingProxyType({})
) -> bool:
    """True if the ranks of a node, a chief and servers among them, had fewer cores than the machine's file specifies.

    Or fewer than they have threads. Cores are physical ones, and at most as many as the quota is worth.

    Hosts that are one machine, such as those of the laboratory, share its cores. Where a service node launches the
    ranks, its cores are not theirs: each rank tells its own.
    """
    cores = host_capabilities.count_cores_of_rank(run.parameters, run.machine)
    own = [rank["cores_usable"] for rank in metrics.get("ranks", []) if "cores_usable" in rank]
    if launchers.get_launcher(run.machine).from_a_service_node or any(cores > each for each in own):
        return any(cores > each for each in own)
    if hosts := provenance.get("hosts"):
        on = Counter(roles.list_hosts(run))
        processes_at: Counter[str] = Counter()
        for host in hosts:
            processes_at[host["boot_id"]] += on[host["name"]]
        return any(processes_at[host["boot_id"]] * cores > compute_usable_cores(host) for host in hosts)
    has_others = roles.get_strategy(run) == PARAMETER_SERVER and launchers.get_launcher(run.machine).on_own_hosts
    others = 1 + run["servers"] if has_others else 0  # elsewhere each process has a rank's place
    ranks = min(run.ranks, run.machine["ranks_per_node"]) + others
    return ranks * cores > compute_usable_cores(provenance["host"])
