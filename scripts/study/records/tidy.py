"""The tidy tables of a study, the input of its tables and figures: one of all runs, one of all loading samples."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, TextIO

import pandas as pd

from study.core import checked, code_version, csv_files, paths, units
from study.core.csv_files import FINITE, NAME, TEXT
from study.core.errors import StudyError
from study.core.files import last_change_ns
from study.data.tabular import paper_size
from study.experiment.ensemble import networks_of
from study.experiment.parameter import EpochList
from study.experiment.parameters import PARAMETERS
from study.experiment.study import PlannedRun
from study.instruments.phases import PHASES
from study.instruments.profiler import COLUMNS as PROFILE_COLUMNS
from study.records import checks, comparable, ensemble, power, targets, utilisation
from study.records.record import R2_NAMES, READING, SAMPLES, read_record, verify

# Columns that the tidy tables have in each row.
RUNS = dict.fromkeys(("benchmark", "status", "record"), NAME)
LOADS = dict.fromkeys(("benchmark", "file", "loader", "status", "record"), NAME)
NO_MODE = "none"  # memory mode of a machine whose file declares none; not NaN, by which tables could not group


def runs_frame(
    runs: Iterable[PlannedRun],
    training_code: dict[str, str],
    folder: str | Path,
    peak: utilisation.Peak = None,
    verify_old: bool = True,
) -> pd.DataFrame:
    """A data frame with one row per run.

    Args:
        runs: of the study.
        training_code: see `current_code`, for the column ``code_is_current``.
        folder: the machine's results folder, to which the column ``record`` is relative.
        peak: the machine's ``peak_flop_per_s_per_rank``, if its file declares one.
        verify_old: whether the checksums of all files of a run are compared, or only of those that are newer than its
            record.

    Raises `StudyError` for a record of another machine or run, and for files that were changed after the run.
    """
    frame = pd.DataFrame([_run_row(run, training_code, Path(folder), peak, verify_old) for run in runs])
    return power.without_shared(frame.assign(overlapped=comparable.disturbed(frame))) if len(frame) else frame


def current_code(benchmarks: Iterable[str]) -> dict[str, str]:
    """{benchmark: digest of the current training code}."""
    return {name: code_version.training_code(name) for name in benchmarks}


def _code_of(parameters: Mapping[str, Any], training_code: dict[str, str]) -> str:
    """The digest of the current code of a run; of an ensemble with further networks, of theirs too."""
    networks = networks_of(parameters)
    name = parameters["benchmark"]
    return code_version.training_code(name, *networks) if networks else training_code[name]


def with_targets(frame: pd.DataFrame, runs: Iterable[PlannedRun], folder: str | Path) -> pd.DataFrame:
    """Add the columns of `study.records.targets` to the result of `runs_frame`; this reads the runs' telemetry.

    runs, folder: as for `runs_frame`.
    """
    if frame.empty:
        return frame
    rows = []
    for run in runs:
        path = Path(paths.record(folder, run.directory))
        rows.append(targets.to_target(path.parent, read_record(path), run.dataset.target))
    added = pd.DataFrame(rows, columns=list(targets.COLUMNS), index=frame.index)
    return pd.concat([frame, added], axis=1)


def recorded(runs: Iterable[PlannedRun], folder: str | Path) -> tuple[list[PlannedRun], list[PlannedRun]]:
    """The runs with a record in the machine's results folder, and those without."""
    done: list[PlannedRun] = []
    left: list[PlannedRun] = []
    for run in runs:
        (done if Path(paths.record(folder, run.directory)).exists() else left).append(run)
    return done, left


def _run_row(
    run: PlannedRun, training_code: dict[str, str], folder: Path, peak: utilisation.Peak, verify_old: bool
) -> dict[str, Any]:
    path = Path(paths.record(folder, run.directory))
    record = read_record(path)
    _refuse_another(record, run, paths.machine_of(folder), path)
    verify(path.parent, record["files"], None if verify_old else last_change_ns(path))
    failure = record["failure"] or {}
    provenance = record["provenance"]
    times = record["phases"]
    nothing = dict.fromkeys
    row = {
        "machine": record["machine"],
        "memory_mode": record["memory_mode"] or NO_MODE,
        **record["parameters"],
        **record["derived"],
        "learning_rate": record["parameters"]["base_learning_rate"] or record["benchmark"]["learning_rate"],
        "optimizer": record["benchmark"]["optimizer"],
        "loss_function": record["benchmark"]["loss"],
        **(record["workload"] or nothing(WORKLOAD)),
        **_sizes(record["data_mb"], run.spec["files"]),
        "block": record["block"],
        "started_wall_ns": provenance["started_wall_ns"],
        **{name: provenance.get(name) for name in ("started_monotonic_ns", "boot_id", "data_checksum")},
        "session": provenance["session"],
        "status": record["status"],
        "failure_kind": failure.get("kind"),
        "failure_phase": failure.get("phase"),
        "failure_message": failure.get("message"),
        "workers_lost": record["workers_lost"],
        "checks": checks.as_text(record),
        "may_fail": run.may_fail,
        "arms": arms_text(run),
        "resumed_after_epoch": record["resumed_after_epoch"],
        "runtime_s": record["runtime_s"],
        **{f"{phase}_s": times.get(phase, {}).get("slowest_s") for phase in PHASES},
        "other_s": record["runtime_s"] - sum(times[phase]["rank_0_s"] or 0 for phase in PHASES if phase in times),
        "stage_s": times.get("stage", {}).get("slowest_s"),
        "checkpoint_s": times.get("checkpoint", {}).get("slowest_s"),
        **{f"{phase}_fastest_s": times.get(phase, {}).get("fastest_s") for phase in PHASES},
        **(nothing(TRAINING) | (record["training"] or {})),
        STEADY: _steady_samples_per_s(record),
        **utilisation.flop_columns(record, run.spec["model"], peak),
        **(nothing(QUALITY) | (record["quality"] or {})),
        **{column: (record["reading"] or {}).get(name) for name, column in READING.items()},
        **(nothing(TRAFFIC) | (record["traffic"] or {})),
        **{f"busbw_{each['bytes']}_gb_per_s": each["busbw_gb_per_s"] for each in record["allreduce_sweep"] or []},
        **{f"checkpoint_{name}": (record["checkpoints"] or {}).get(name) for name in CHECKPOINTS},
        **{name: (record["ensemble"] or {}).get(name) for name in (*ensemble.COLUMNS, *ensemble.VOTE)},
        **(record["memory"] or nothing(["peak_memory_mb"])),
        **{f"autotuned_{name}": (record["autotuning"] or {}).get(name) for name in AUTOTUNED},
        **{name: (record["calibration"] or {}).get(key) for name, key in CALIBRATION.items()},
        "communication_libraries": ", ".join(map(" ".join, record["communication_libraries"].items())) or None,
        "parameters": record["model"]["parameters"] if record["model"] else None,
        "ranks_agree": record["model"]["ranks_agree"] if record["model"] else None,
        **{name: (record["model"] or {}).get(name) for name in CHECKSUMS},
        **power.power_columns(record),
        **_communication(record["communication"]),
        **_profile(record["profile"]),
        "packages": ", ".join(f"{name} {version}" for name, version in provenance["packages"].items() if version),
        "oversubscribed": provenance["oversubscribed"],
        "steering": comparable.steering_text(provenance["steering"]),
        "job_options": None if record["job_options"] is None else " ".join(record["job_options"]),
        "timed_alone": provenance.get("timed_alone"),
        **{name: provenance.get(name) for name in ("cpu_quota_cores", "system", "hardware")},
        "training_code": provenance["training_code"],
        "code_is_current": provenance["training_code"] == _code_of(record["parameters"], training_code),
        "git_commit": provenance["git_commit"],
        "git_dirty": provenance["git_dirty"],
        "host": provenance["host"],
        "hosts": " ".join(host["name"] for host in record["hosts"]) or provenance["host"],
        "clock_uncertainty_s": max((host["clock_uncertainty_s"] for host in record["hosts"]), default=None),
        "record": str(path.relative_to(folder)),
    }
    if record["resumed_after_epoch"]:  # trained in several pieces: its times, power and energy are not comparable
        units = ("_s", "_w", "_j", "_js")
        row |= dict.fromkeys(name for name in row if name.endswith(units) and name not in PARAMETERS)
        row |= dict.fromkeys((*ensemble.COUNTS, *READING.values()))
    return row | dict.fromkeys(name for name in checks.emptied(record) if name in row)


def _steady_samples_per_s(record: dict[str, Any]) -> float | None:
    """Samples per second of all ranks in the steps of the epochs after the first; None with one epoch.

    None of an ensemble too: the time per step is that of one member.
    """
    keys, training = record["parameters"], record["training"] or {}
    seconds = (training.get("time_per_step_s") or 0) * (training.get("steps_per_epoch") or 0)
    if not seconds or record["derived"]["epochs_per_rank"] < 2 or keys["ensemble"] > 1:
        return None
    return float(record["workload"]["samples_per_rank"] * keys["gpus"] * keys["emulated_ranks"] / seconds)


def arms_text(run: PlannedRun) -> str | None:
    """The column ``arms``: JSON, a list of [arm, baseline, {key: [value, baseline's]}]; None for a run without."""
    if not run.arms:
        return None
    parts = [[arm.name, arm.baseline, {key: list(pair) for key, pair in arm.switches.items()}] for arm in run.arms]
    return json.dumps(parts)


def _refuse_another(record: dict[str, Any], run: PlannedRun, machine: str, path: Path) -> None:
    """Raise `StudyError` for a record that was copied here: of another machine, or of another run."""
    found = {"machine": record["machine"], **record["parameters"]}
    for name, expected in {"machine": machine, **run.parameters}.items():
        if found[name] != expected:
            raise StudyError(
                f"{path}: is a record with {name} {found[name]!r}, but {expected!r} is expected here; move its folder "
                "to where it belongs, or delete it to run again"
            )


def _communication(communication: dict[str, Any] | None) -> dict[str, Any]:
    """Columns of a traced run. Allreduce times are per epoch: the mean over all epochs but the first, if possible.

    In the first epoch TensorFlow builds its graph, and the ranks wait for the slowest.
    """
    if communication is None:
        return dict.fromkeys(COMMUNICATION)
    epochs = communication["allreduce_epochs"][1:] or communication["allreduce_epochs"]
    parts = communication["allreduce"]
    return {
        **{f"timeline_{name}": communication[name] for name in BROADCAST},
        **{f"allreduce_{part}": _mean([epoch[part] for epoch in epochs]) for part in parts},
        FIRST: communication.get(FIRST),
        **{name: communication[name] for name in FUSED},
        "timeline_lost": communication["dropped_events"] + communication["lost_bytes"] > 0,
    }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _profile(profile: dict[str, Any] | None) -> dict[str, Any]:
    """Columns of a profiled run, ``profile_<column>``."""
    return {f"profile_{name}": (profile or {}).get(name) for name in PROFILE}


BROADCAST = ("broadcast_span_s", "broadcast_skew_s", "broadcast_negotiation_s", "broadcast_transfer_s")
FUSED = ("allreduce_operations", "allreduce_tensors", "allreduce_mean_mb", "allreduce_largest_mb", "slowest_rank",
         "slowest_rank_share")  # fmt: skip
ALLREDUCE = ("allreduce_negotiation_s", "allreduce_operation_s", "allreduce_transfer_s", "allreduce_copies_s")
FIRST = "allreduce_first_s"
COMMUNICATION = (*(f"timeline_{name}" for name in BROADCAST), *ALLREDUCE, FIRST, *FUSED, "timeline_lost")
PROFILE = ("total_s", *PROFILE_COLUMNS)


def _sizes(data_mb: dict[str, float], files: dict[str, Any]) -> dict[str, float | None]:
    """``train_mb`` and ``test_mb``, in 10^6 bytes: the files that belong to each of the paper's two sizes."""
    return {
        f"{split}_mb": sum(size for file, size in data_mb.items() if paper_size(files[file]) == split) or None
        for split in ("train", "test")
    }


WORKLOAD = ("train_samples", "test_samples", "features", "samples_per_rank")
CHECKPOINTS = ("number", "write_s", "file_mb", "state_mb", "restore_s", "restored_loss_error")
AUTOTUNED = ("fusion_threshold_mb", "cycle_time_ms", "is_finished")
CALIBRATION = {"calibration_s": "calibration_s", "calibration_version": "version"}
TRAFFIC = ("gradient_mb", "tcp_sent_mb_per_step", "tcp_received_mb_per_step", "servers_sent_mb_per_step",
           "servers_received_mb_per_step", "busiest_server_share", "cpu_busy", "cpu_limited")  # fmt: skip
STEP_TIMES = ("step_time_median_s", "step_time_p95_s", "step_time_jitter")
TRAINING = ("time_per_epoch_s", "time_per_epoch_steady_s", "time_per_step_s", "throughput_samples_per_s",
            "learning_rate_used", "steps_per_epoch", "first_epoch_excess_s", "compute_per_step_slowest_s",
            "compute_per_step_fastest_s", *STEP_TIMES, "input_wait_per_step_s", "gradient_noise_scale")  # fmt: skip
STEADY = "steady_samples_per_s"
CHECKSUMS = ("final_weights_crc32", "inputs_crc32")
METRICS = ("accuracy", "top5_accuracy", "growth_sign_accuracy", "r2", "loss", "correlation")
QUALITY = [f"{of}{name}" for name in METRICS for of in SAMPLES]
# The columns of runs.csv that figures may draw against the number of GPUs.
MEASURED = (
    "runtime_s", "other_s", "stage_s", "checkpoint_s",
    *(f"{phase}_s" for phase in PHASES), *(f"{phase}_fastest_s" for phase in PHASES),
    *TRAINING, STEADY, *utilisation.COLUMNS[:-1], *ensemble.COLUMNS, *ensemble.ACCURACIES, *targets.MEASURES,
    *QUALITY, *READING.values(), "peak_memory_mb", *TRAFFIC[:-1],
    *(name for name in power.POWER if "one_hz" not in name), *power.NODE_MEANS, "gpu_utilisation_pct",
)  # fmt: skip


def read_runs(path: str | Path | TextIO) -> pd.DataFrame:
    """Read ``runs.csv``; grid keys newer than the file get their defaults. Empty if there are no runs.

    P1B3's R2, which older files have as ``accuracy``, gets its own columns. Derived columns newer than the file are
    empty.
    """
    frame = _read_table(path, RUNS)
    if len(frame):
        if "r2" not in frame and "growth_sign_accuracy" in frame:
            is_p1b3 = frame["growth_sign_accuracy"].notna()
            for old, new in R2_NAMES.items():
                frame[new], frame[old] = frame[old].where(is_p1b3), frame[old].mask(is_p1b3)
        frame = frame.assign(**{name: math.nan for name in QUALITY if name not in frame})
        if "memory_mode" not in frame:
            frame["memory_mode"] = NO_MODE
        newer = {name: each.default for name, each in PARAMETERS.items() if each.has_default and name not in frame}
        for name in (*utilisation.COLUMNS, *targets.COLUMNS, *TRAFFIC, *(f"checkpoint_{name}" for name in CHECKPOINTS),
                     STEADY, *STEP_TIMES, *(f"autotuned_{name}" for name in AUTOTUNED), *READING.values(),
                     *ensemble.VOTE):  # fmt: skip
            if name not in frame:
                newer[name] = None
        frame = pd.concat([frame, pd.DataFrame(newer, index=frame.index)], axis=1)
    return frame


def read_loading(path: str | Path | TextIO) -> pd.DataFrame:
    """Read ``loading.csv``; empty if the study has no loading measurement."""
    return _read_table(path, LOADS)


def _read_table(path: str | Path | TextIO, kinds: Mapping[str, str]) -> pd.DataFrame:
    """Raises `StudyError` also for a record that is not in a machine's results folder."""
    frame = csv_files.read_csv(path, kinds, others=_kind_of, may_be_empty=True)
    for record in frame.get("record", pd.Series(dtype=object)).dropna().unique():
        parts = PurePosixPath(str(record)).parts
        within = parts[2:] if parts[:1] == ("..",) else parts  # of another machine: ../MACHINE/...
        if not within or ".." in within or str(record).startswith("/"):
            raise StudyError(
                f"{path}: record: {record!r} is not in the results folder; delete the file to make it again"
            )
    return frame


def _kind_of(column: str) -> str | None:
    """The kind of a column of the tidy tables: one with a unit is a number."""
    is_text = column in ("arms", "checks") or (column in PARAMETERS and isinstance(PARAMETERS[column].kind, EpochList))
    return TEXT if is_text else FINITE if units.of_column(column) else None


def loading_frame(loading_files: Iterable[str | Path], loading_code: str, folder: str | Path) -> pd.DataFrame:
    """A data frame with one row per load: labels, file, shape, size, loader, repeat, seconds, memory, checksum.

    loading_code: digest of the current code, for ``code_is_current``. folder: to which ``record`` is relative.
    """
    rows = []
    for path in loading_files:
        measured = checked.load_json(path, "loading")
        for sample in measured["samples"]:
            file = measured["files"].get(sample["file"])
            if file is None:
                raise StudyError(f"{path}: samples of {sample['file']!r}, which is none of its files; delete it")
            rows.append(
                {
                    "machine": measured["machine"],
                    "benchmark": measured["benchmark"],
                    "dataset": measured["dataset"],
                    "split": file["split"],
                    "rows": file["shape"][0],
                    "columns": file["shape"][1],
                    "size_mb": file["size_mb"],
                    **sample,
                    "cold_reason": measured["cold_reason"],
                    "code_is_current": measured["loading_code"] == loading_code,
                    "record": str(Path(path).relative_to(folder)),
                }
            )
    frame = pd.DataFrame(rows, columns=LOADING)
    _refuse_different_arrays(frame)
    return frame


LOADING = ("machine", "benchmark", "dataset", "file", "split", "rows", "columns", "size_mb", "page_cache", "loader",
           "repeat", "status", "message", "store_s", "stored_mb", "load_s", "decode_s", "decoder_s", "peak_memory_mb",
           "imported_memory_mb", "crc32", "cold_reason", "code_is_current", "record")  # fmt: skip


def _refuse_different_arrays(frame: pd.DataFrame) -> None:
    """Loaders are compared only if they give bit-identical arrays."""
    for key, group in frame[frame["status"] == "ok"].groupby(["benchmark", "dataset", "file"]):
        if group["crc32"].nunique() > 1:
            found = group.groupby("loader")["crc32"].unique().to_dict()
            raise StudyError(f"{'/'.join(key)}: the loaders give different arrays (CRC-32 by loader: {found})")
