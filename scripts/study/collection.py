"""One tidy table of all runs of a study, and one of all its loading samples: what tables are made from."""

import json
from pathlib import Path

import pandas as pd

from study import configuration
from study.errors import StudyError
from study.phases import PHASES
from study.record import read_record, verify


def runs_frame(record_files, training_code, folder):
    """A data frame with a row a run.

    training_code: {benchmark: digest of today's code}, for the column ``code_is_current``.
    folder: the machine's results folder, to which the column ``record`` is relative.
    """
    rows = [_run_row(Path(path), training_code, folder) for path in record_files]
    return pd.DataFrame(rows)


def _run_row(path, training_code, folder):
    record = read_record(path)
    verify(path.parent, record["files"])
    failure = record["failure"] or {}
    provenance = record["provenance"]
    times = record["phases"]
    nothing = dict.fromkeys
    return {
        "machine": record["machine"],
        **record["parameters"],
        **record["derived"],
        **record["workload"],
        "status": record["status"],
        "failure_kind": failure.get("kind"),
        "failure_phase": failure.get("phase"),
        "failure_message": failure.get("message"),
        "runtime_s": record["runtime_s"],
        **{f"{phase}_s": times.get(phase, {}).get("slowest_s") for phase in PHASES},
        "other_s": record["runtime_s"] - sum(times[phase]["rank_0_s"] for phase in times if times[phase]["rank_0_s"]),
        **{f"{phase}_fastest_s": times.get(phase, {}).get("fastest_s") for phase in PHASES},
        **(record["training"] or nothing(TRAINING)),
        **(record["quality"] or nothing(QUALITY)),
        **(record["memory"] or nothing(["peak_memory_mb"])),
        "ranks_agree": record["model"]["ranks_agree"] if record["model"] else None,
        "power_per_gpu_w": record["power"]["power_per_gpu_w"],
        "energy_per_gpu_j": record["power"]["energy_per_gpu_j"],
        "power_reason": record["power"]["reason"],
        "oversubscribed": provenance["oversubscribed"],
        "training_code": provenance["training_code"],
        "code_is_current": provenance["training_code"] == training_code[record["parameters"]["benchmark"]],
        "git_commit": provenance["git_commit"],
        "git_dirty": provenance["git_dirty"],
        "host": provenance["host"],
        "record": str(path.relative_to(folder)),
    }


TRAINING = ("time_per_epoch_s", "time_per_epoch_steady_s", "throughput_samples_per_s", "learning_rate_used")
QUALITY = ("accuracy", "loss", "validation_accuracy", "validation_loss", "test_accuracy", "test_loss")


def loading_frame(loading_files, loading_code, folder):
    """A data frame with a row a load: labels, split, shape, size, loader, repeat, seconds, memory, checksum.

    loading_code: digest of today's code, for ``code_is_current``. folder: what ``record`` is relative to.
    """
    rows = []
    for path in loading_files:
        measured = json.loads(Path(path).read_text(encoding="utf-8"))
        configuration.check(measured, "loading", str(path))
        for sample in measured["samples"]:
            split = measured["splits"][sample["split"]]
            rows.append(
                {
                    "machine": measured["machine"],
                    "benchmark": measured["benchmark"],
                    "dataset": measured["dataset"],
                    "samples": split["shape"][0],
                    "features": split["shape"][1] - 1,
                    "size_mb": split["csv_mb"],
                    "page_cache": measured["page_cache"],
                    **sample,
                    "code_is_current": measured["loading_code"] == loading_code,
                    "record": str(Path(path).relative_to(folder)),
                }
            )
    frame = pd.DataFrame(rows, columns=LOADING)
    _refuse_different_arrays(frame)
    return frame


LOADING = ("machine", "benchmark", "dataset", "split", "samples", "features", "size_mb", "page_cache", "loader",
           "repeat", "status", "message", "load_s", "peak_memory_mb", "crc32", "code_is_current", "record")  # fmt: skip


def _refuse_different_arrays(frame):
    """Loaders are compared only where they give the same array, bit for bit."""
    for key, group in frame[frame["status"] == "ok"].groupby(["benchmark", "dataset", "split"]):
        if group["crc32"].nunique() > 1:
            found = group.groupby("loader")["crc32"].unique().to_dict()
            raise StudyError(f"{'/'.join(key)}: the loaders give different arrays (CRC-32 by loader: {found})")
