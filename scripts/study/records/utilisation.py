"""Achieved floating-point operations per second of a run, and their share of the machine's peak."""

from typing import Any

from study.core import fields
from study.experiment.ensemble import list_members
from study.workloads import operations

COLUMNS = tuple(each.name for each in fields.find_section("Floating-point operations").fields)


def flop_columns(record: dict[str, Any], model: dict[str, Any], peak: operations.Peak) -> dict[str, Any]:
    """The `COLUMNS` of one run: counted operations per sample x throughput. What is unknown is None, with the reason.

    The throughput's time includes validation, whose operations are not counted.

    Args:
        record: the run record.
        model: ``model`` in the benchmark's YAML.
        peak: ``peak_flop_per_s_per_rank`` in the machine's file (FLOP/s); None if it declares none. The peak counts of
            the precision in which the run computed, and no other.
    """
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    name = record["parameters"]["benchmark"]
    if why := _explain_uncounted(record):
        return row | {"flop_reason": why}
    flop = operations.count_training_flop(name, model, record["workload"]["features"])
    if flop is None:
        return row | {"flop_reason": operations.explain_missing_layers(name)}
    row["model_flop_per_sample"] = flop
    if record["resumed_after_epoch"] is not None:
        return row | {"flop_reason": "resumed from a checkpoint: no throughput"}
    row["flop_per_s"] = flop * record["training"]["throughput_samples_per_s"]
    row["flop_per_s_per_rank"] = row["flop_per_s"] / record["parameters"]["gpus"]
    precision = record["parameters"].get("precision", operations.FLOAT32)
    most = operations.choose_peak(peak, precision)
    if most is None:
        suffix = f" of precision {precision}" if peak is not None else ""
        return row | {
            "flop_reason": f"config/machines/{record['machine']}.yaml has no peak_flop_per_s_per_rank{suffix}"
        }
    return row | {"flop_utilisation": row["flop_per_s_per_rank"] / most}


def _explain_uncounted(record: dict[str, Any]) -> str | None:
    """Why a run's operations are not those of the model times the throughput; None if they are."""
    if record["status"] != "ok":
        return "the run failed"
    if record.get("program"):
        return "the operations of a command are not counted"
    if record["training"] is None or record["parameters"]["compute"] != "measured":
        return "the run trained nothing"
    if any(each.model for each in list_members(record["parameters"])):
        return "members have models of their own"
    return None
