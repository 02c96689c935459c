"""Achieved floating-point operations per second of a run, and their share of the machine's peak."""

from typing import Any

from study.models import operations

COLUMNS = ("model_flop_per_sample", "flop_per_s", "flop_per_s_per_rank", "flop_utilisation", "flop_reason")


def flop_columns(record: dict[str, Any], model: dict[str, Any], peak: float | None) -> dict[str, Any]:
    """The `COLUMNS` of one run: counted operations per sample x throughput. What is unknown is None, with the reason.

    The throughput's time includes validation, whose operations are not counted.

    Args:
        record: the run record.
        model: ``model`` in the benchmark's YAML.
        peak: ``peak_flop_per_s_per_rank`` in the machine's file (FLOP/s); None if it declares none.
    """
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    name = record["parameters"]["benchmark"]
    if record["training"] is None:
        return row | {"flop_reason": "the run failed"}
    flop = operations.training_flop(name, model, record["workload"]["features"])
    if flop is None:
        return row | {"flop_reason": f"the layers of {name} are not in scripts/study/models/operations.py"}
    row["model_flop_per_sample"] = flop
    if record["resumed_after_epoch"]:
        return row | {"flop_reason": "resumed from a checkpoint: no throughput"}
    row["flop_per_s"] = flop * record["training"]["throughput_samples_per_s"]
    row["flop_per_s_per_rank"] = row["flop_per_s"] / record["parameters"]["gpus"]
    if peak is None:
        return row | {"flop_reason": f"config/machines/{record['machine']}.yaml has no peak_flop_per_s_per_rank"}
    return row | {"flop_utilisation": row["flop_per_s_per_rank"] / peak}
