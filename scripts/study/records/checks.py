"""The checks of a run, each declared once: what it means, its evidence, and the consequence of a failed one.

A failed check either fails the run, or empties the columns of ``runs.csv`` that it concerns. None is information only.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from study.core import fields
from study.instruments.phases import PROGRAM
from study.records import program_times
from study.records.power import METERED, WHOLE_RUN

PASSED, FAILED, NOT_MADE = "passed", "failed", "not made"
KIND = "check"  # of the failure of a run with a failed check
MOST_EVENTS_LOST = 0.01  # of a timeline
MOST_LOSS_APART = 0.01  # of a restored model's loss: 16-bit layers on a GPU do not add up in a fixed order
BYTES_PER_EVENT = 60  # of a timeline, at least


@dataclass(frozen=True)
class Evidence:
    """What checks read: the record, and the run's ``metrics.json`` and ``provenance.json`` ."""

    record: Mapping[str, Any]
    metrics: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ranks(self) -> list[Mapping[str, Any]]:
        """All processes that tell results."""
        return [*self.metrics.get("ranks", []), *self.metrics.get("processes", [])]


@dataclass(frozen=True)
class Check:
    """One check of a run.

    Args:
        name: in the record and in the column ``checks``.
        meaning: what is true of a run that passes it.
        reason: from the evidence, why the run fails it; None if it passes, `NOT_MADE` without evidence.
        columns: from the record, the columns that a failed check empties; None if it fails the run.
    """

    name: str
    meaning: str
    reason: Callable[[Evidence], str | None]
    columns: Callable[[Mapping[str, Any]], list[str]] | None = None


def _ranks_agree(evidence: Evidence) -> str | None:
    agree = (evidence.record["model"] or {}).get("ranks_agree")
    if agree is None:
        return NOT_MADE
    return None if agree else "the ranks ended with different weights: their gradients or updates are not the same"


def _gradients_averaged(evidence: Evidence) -> str | None:
    answers = [rank["gradients_averaged"] for rank in evidence.ranks if rank.get("gradients_averaged") is not None]
    if not answers:
        return NOT_MADE
    return None if all(answers) else "a rank applied gradients that were not averaged over the ranks"


def _weights_finite(evidence: Evidence) -> str | None:
    answers = [rank["weights_finite"] for rank in evidence.ranks if rank.get("weights_finite") is not None]
    if not answers:
        return NOT_MADE
    return None if all(answers) else "weights or moving statistics are not finite at the end; lower the learning rate"


def _data_complete(evidence: Evidence) -> str | None:
    data = evidence.provenance.get("data", {})
    rows_by_file = {file: facts["shape"][0] for file, facts in data.items() if "shape" in facts}
    loaded = [rank["rows_loaded"] for rank in evidence.ranks if rank.get("rows_loaded")]
    if not rows_by_file or not loaded:
        return NOT_MADE
    for rows in loaded:
        for file, number in rows.items():
            if rows_by_file.get(file, number) != number:
                return f"{file}: a rank loaded {number} rows, the converted file has {rows_by_file[file]}"
    return None


def _own_gpus(evidence: Evidence) -> str | None:
    ranks_by_gpu = Counter(rank["gpu"] for rank in evidence.metrics.get("ranks", []) if rank.get("gpu"))
    if ranks_by_gpu.total() < 2:
        return NOT_MADE
    # A command's GPUs follow from a convention; there is energy only if NVML confirms it.
    if PROGRAM in evidence.metrics and evidence.record["power"]["components"]["gpu"]["energy_j"] is None:
        return NOT_MADE
    gpu, ranks = ranks_by_gpu.most_common(1)[0]
    if ranks == 1:
        return None
    return (f"{ranks} ranks trained on {gpu}: their node shows fewer GPUs than it has ranks; correct ranks_per_node in "
            "the machine's file, or what its jobs ask for")  # fmt: skip


def _isolation(evidence: Evidence) -> str | None:
    isolation = evidence.provenance.get("isolation")
    return NOT_MADE if isolation is None else "; ".join(isolation) or None


def _sensors_plausible(evidence: Evidence) -> str | None:
    power = evidence.record["power"]
    parts = [power["components"], *power["phases"].values()]
    if not any(part["energy_j"] is not None or part.get("doubtful") for kinds in parts for part in kinds.values()):
        return NOT_MADE
    doubts = (part["doubtful"][0]["why"] for kinds in parts for part in kinds.values() if part.get("doubtful"))
    return "; ".join(dict.fromkeys(doubts)) or None


def _doubtful_columns(record: Mapping[str, Any]) -> list[str]:
    """The columns of a kind of device that is doubtful in the whole run; those of its training if it is so there."""
    power = record["power"]
    kinds = [kind for kind, part in power["components"].items() if part.get("doubtful")]
    training = power["phases"].get("train", {}).get("gpu", {}).get("doubtful")
    columns = [name for name, meter in METERED.items() if meter in kinds and not name.startswith(WHOLE_RUN)]
    return [*columns, *(["power_per_gpu_training_w"] if training else [])]


def _checkpoints_restore(evidence: Evidence) -> str | None:
    error = (evidence.record.get("checkpoints") or {}).get("restored_loss_error")
    if error is None:
        return NOT_MADE
    return None if error <= MOST_LOSS_APART else f"the restored model has another validation loss (by {error:.2g})"


def _numbers_agree(evidence: Evidence) -> str | None:
    program = evidence.metrics.get("program")
    is_whole = evidence.record["resumed_after_epoch"] is None  # else its time is not that of all epochs
    if not program or not evidence.record["training"] or not is_whole:
        return NOT_MADE
    return program_times.explain_contradiction(evidence.record, program)


def _timeline_complete(evidence: Evidence) -> str | None:
    communication = evidence.record["communication"]
    if not communication:
        return NOT_MADE
    lost = communication["dropped_events"] + communication["lost_bytes"] / BYTES_PER_EVENT
    share = lost / (communication["events"] + lost) if lost else 0.0
    return None if share <= MOST_EVENTS_LOST else f"{share:.1%} of the timeline's events are lost or have no end"


def _timeline_columns(record: Mapping[str, Any]) -> list[str]:
    declared = fields.find_section("communication").fields
    return [each.column for each in declared if each.column and each.name not in ("allreduce_first_s", "timeline_lost")]


CHECKS = {
    check.name: check
    for check in (
        Check("ranks_agree", "all ranks ended with equal trained weights", _ranks_agree),
        Check("gradients_averaged", "each step's gradients were averaged over the ranks", _gradients_averaged),
        Check("weights_finite", "all weights and moving statistics are finite at the end", _weights_finite),
        Check("data_complete", "each rank loaded as many rows of each file as were converted", _data_complete),
        Check("own_gpus", "each rank trained on a GPU of its own", _own_gpus),
        Check("isolated", "nothing outside the run's definition and the machine's file steered its ranks", _isolation),
        Check("sensors_plausible", "energy counters and power readings can be true", _sensors_plausible,
              _doubtful_columns),
        Check("checkpoints_restore", "a restored checkpoint has the validation loss of its epoch",
              _checkpoints_restore,
              lambda record: [f"checkpoint_{name}" for name in record["checkpoints"] if name != "number"]),
        Check("numbers_agree", "a command's numbers fit each other, its samples and its time", _numbers_agree,
              lambda record: program_times.COLUMNS),
        Check("timeline_complete", "at most 1 % of the events of Horovod's timeline are lost", _timeline_complete,
              _timeline_columns),
    )
}  # fmt: skip


def add_check_results(record: dict[str, Any], evidence: Evidence) -> dict[str, Any]:
    """``record`` with ``checks`` and ``check_reasons``; failed, and without its results, if such a check failed."""
    reasons = {name: check.reason(evidence) for name, check in CHECKS.items()}
    messages = {
        name: PASSED if reason is None else NOT_MADE if reason == NOT_MADE else FAILED
        for name, reason in reasons.items()
    }
    failed = {name: reason for name, reason in reasons.items() if messages[name] == FAILED}
    return _with_consequence({**record, "checks": messages, "check_reasons": failed})


def _with_consequence(record: dict[str, Any]) -> dict[str, Any]:
    grave = [f"{name}: {reason}" for name, reason in record["check_reasons"].items() if CHECKS[name].columns is None]
    if record["status"] != "ok" or not grave:
        return record
    failure: dict[str, Any] = {
        "kind": KIND,
        "phase": None,
        "rank": None,
        "host": None,
        "message": "; ".join(grave),
        "log": [],
    }
    return {
        **record,
        "status": "failed",
        "failure": failure,
        "processes": [],
        **dict.fromkeys(fields.list_result_keys()),
    }


def list_emptied_columns(record: Mapping[str, Any]) -> list[str]:
    """The columns of ``runs.csv`` that are empty because a check of this record failed."""
    columns = [CHECKS[name].columns for name in record["check_reasons"] if name in CHECKS]
    return [name for columns_of in columns if columns_of for name in columns_of(record)]


def as_text(record: Mapping[str, Any]) -> str:
    """The column ``checks``: failed ones first, with the reason, then those that passed and those not made."""
    order = (FAILED, PASSED, NOT_MADE)
    results = sorted(record["checks"].items(), key=lambda each: order.index(each[1]))
    reasons = record["check_reasons"]
    return "; ".join(f"{name} {result}{f' ({reasons[name]})' if name in reasons else ''}" for name, result in results)
