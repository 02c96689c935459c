"""Events of a program: lines in MLPerf's logging format, and how they become phases and epochs.

``:::MLLOG {json}`` on standard output, or JSON lines in the file that ``STUDY_EVENTS`` names. The JSON has ``key``,
``time_ms`` (wall clock) or ``time_ns``, perhaps ``value``, ``metadata`` and ``rank``.

    init_start, init_stop               phase load; load_*, preprocess_* and broadcast_* are phases of their own
    run_start, run_stop                 phase train; metadata status of run_stop: success if it has reached its target
    epoch_start, epoch_stop             an epoch; metadata epoch_num of epoch_start: its number, from whatever first one
    block_start, block_stop             without epochs between them, as many equal ones as its epoch_count says
    eval_start, eval_stop               validation within the run, phase evaluate after it
    eval_accuracy, eval_loss, ...       a metric of the validation, of the test set after the run or without any epoch
    tracked_stats                       {loss: 0.1, learning_rate: 0.01}: metrics of the epoch
    train_samples, eval_samples         sizes of the sets
    trained_samples                     samples that all ranks train in an epoch, if they leave some out
    global_batch_size                   samples of a step of all ranks
    model_parameters                    number of the model's parameters

Others are ignored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from study.core.errors import StudyError
from study.instruments.phases import PhaseLog, measure_zero_ns
from study.workloads.command.patterns import MOST_OF_OWN

MARK = b":::MLLOG "
PHASES = {"init": "load", "load": "load", "preprocess": "preprocess", "broadcast": "broadcast", "run": "train"}
STARTUP = "startup"  # the phase until the first one that is told
EARLIER_NS = 1_000_000_000  # before the start of the process: a clock of milliseconds may be a little behind
SIZES = ("train_samples", "trained_samples", "global_batch_size", "eval_samples", "model_parameters")
MOST = 2**62  # of a size, and of a time in ns: 146 years
MOST_EPOCHS = 100_000  # of a block
LEARNING_RATES = ("learning_rate", "lr")
Moment = tuple[int, int]  # wall and monotonic ns


@dataclass
class Epoch:
    """An epoch that has ended. metrics: of training; validation's begin with ``val_``. number: as it was told."""

    begin: Moment
    end: Moment
    eval_ns: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    number: int | None = None

    @property
    def seconds(self) -> float:
        """Seconds of the epoch, with validation."""
        return (self.end[1] - self.begin[1]) / 1e9

    @property
    def steps_s(self) -> float:
        """Seconds of the epoch's steps, without validation."""
        return self.seconds - self.eval_ns / 1e9


class Progress:
    """The phases and epochs of one rank, from its events in their order.

    Args:
        phases: the rank's log, with ``startup`` begun.
        started: the start of the process.
        report: called with each epoch that has ended, and its number.
    """

    def __init__(
        self, phases: PhaseLog, started: Moment, report: Callable[[int, Epoch], None] = lambda *_: None
    ) -> None:
        self.epochs: list[Epoch] = []
        self.test: dict[str, float] = {}
        self.sizes: dict[str, int] = {}
        self.number = 0  # of events that were read
        self.has_succeeded = self.is_aborted = False  # as run_stop told
        self.losses: dict[str, float] = {}  # that were told last, in an epoch or outside of one
        self._phases, self._started, self._report = phases, started, report
        self._phase: str | None = STARTUP
        self._epoch: Epoch | None = None
        self._block_epochs = 0  # of the block that is taken for the current epoch
        self._eval: Moment | None = None
        self.runs_left = 0  # run_start that had no run_stop before the next one
        self._is_in_run = False
        self._untrained: dict[str, float] = {}  # of a validation before the first epoch
        self._has_run = self._last_was_reported = False

    def take(self, event: dict[str, Any], at: Moment) -> None:
        """Take one event into account. at: its time.

        Raises:
            StudyError: it cannot follow the events before it.
        """
        if at[0] < self._started[0] - EARLIER_NS:
            late = (self._started[0] - at[0]) / 1e9
            raise StudyError(f"event {event['key']}: its time is {late:.1f} s before the start of its process")
        self.number += 1
        key, value = event["key"], event.get("value")
        name, _, edge = key.rpartition("_")
        if key in ("block_start", "block_stop"):
            self._take_block_edge(edge, at, get_metadata(event))
        elif edge in ("start", "stop") and name in (*PHASES, "epoch", "eval"):
            take_edge = {"epoch": self._take_epoch_edge, "eval": self._take_eval_edge}.get(name)
            take_edge(edge, at) if take_edge else self._take_phase_edge(name, edge, at)
            self._take_metadata(key, get_metadata(event))
        elif key == "tracked_stats" and isinstance(value, dict):
            self._take_stats({name: _limit_size(each) for name, each in value.items() if _is_number(each)})
        elif key in SIZES and _is_number(value) and 0 <= value < MOST:
            self.sizes[key] = int(value)
        elif key.startswith("eval_") and _is_number(value):
            self._take_metrics({key.removeprefix("eval_"): _limit_size(value)}, is_validation=True)

    @property
    def epoch(self) -> int:
        """Number of the current epoch, else of the last one; from 1."""
        return max(1, len(self.epochs) + (self._epoch is not None))

    @property
    def is_in_run(self) -> bool:
        """Whether a run_start has had no run_stop."""
        return self._is_in_run

    @property
    def has_just_begun_run(self) -> bool:
        """Whether a run_start has had no run_stop, and neither the end of an epoch nor another phase since."""
        return self._is_in_run and self._phase == "train" and not self.epochs

    @property
    def is_in_evaluation(self) -> bool:
        """Whether an eval_start has had no eval_stop."""
        return self._eval is not None

    @property
    def epoch_begin(self) -> Moment | None:
        """The begin of the current epoch; None between epochs."""
        return self._epoch.begin if self._epoch else None

    @property
    def last_number(self) -> int | None:
        """The number of the current epoch, else of the last one; None if it was not told."""
        last = self._epoch or (self.epochs[-1] if self.epochs else None)
        return last.number if last else None

    @property
    def is_between_epochs(self) -> bool:
        """Whether an epoch has ended and the next one has not begun."""
        return bool(self.epochs) and self._epoch is None

    @property
    def has_trained(self) -> bool:
        """Whether the rank's events show that it did some work: an epoch, the end of training, a loss or a test."""
        return bool(self.epochs or self._has_run or self.losses or self.test)

    def end(self, at: Moment) -> None:
        """Close the phases and epochs when the process has ended well.

        Raises:
            StudyError: within an epoch.
        """
        if self._epoch:
            raise StudyError(f"epoch {len(self.epochs) + 1} has an epoch_start and no epoch_stop")
        if self._phase not in (None, STARTUP):  # how long startup took is not known if no phase was told
            self._phases.edge(self._phase, "end", at)
            self._phase = None
        if not self.epochs:
            self.test = self._untrained | self.test
        self._report_last()

    def _take_phase_edge(self, name: str, edge: str, at: Moment) -> None:
        """Take the start or stop of a phase."""
        phase = PHASES[name]
        if name == "run":
            self.runs_left += self._is_in_run and edge == "start"
            self._is_in_run = edge == "start"
        if edge == "start":
            self._enter(phase, at)
        elif phase == self._phase:
            self._phases.edge(phase, "end", at)
            self._phase = None
        elif name == "run":
            raise StudyError("event run_stop: there was no run_start")
        if phase == "train":  # it may run again, such as to fine-tune what it has trained
            self._has_run = edge == "stop"

    def _take_metadata(self, key: str, details: dict[str, Any]) -> None:
        """Take success and the epoch's number from the metadata of a start or stop."""
        if key == "run_stop":
            self.has_succeeded, self.is_aborted = (details.get("status") == each for each in ("success", "aborted"))
        elif key == "epoch_start" and self._epoch and type(details.get("epoch_num")) is int:
            self._epoch.number = details["epoch_num"]

    def _enter(self, phase: str, at: Moment) -> None:
        """Begin a phase, and end the one before it."""
        if phase == self._phase:
            return
        if self._phase:
            self._phases.edge(self._phase, "end", at)
        self._phases.edge(phase, "begin", at)
        self._phase = phase

    def _take_epoch_edge(self, edge: str, at: Moment) -> None:
        """Take the start or stop of an epoch."""
        if edge == "start":
            if self._block_epochs:  # the block's epochs are told one by one
                self._epoch, self._block_epochs = None, 0
            if self._epoch:
                raise StudyError(f"event epoch_start: epoch {len(self.epochs) + 1} has not ended: no epoch_stop")
            self._report_last()
            self._enter("train", at)
            self._epoch = Epoch(at, at)
            return
        if not self._epoch:
            raise StudyError("event epoch_stop: there was no epoch_start, or it has had its epoch_stop")
        begin = self._epoch.begin
        if at[1] < begin[1] - EARLIER_NS:
            raise StudyError(f"event epoch_stop: epoch {len(self.epochs) + 1} ended before it began by its clock")
        self._epoch.end = max(at[0], begin[0]), max(at[1], begin[1])
        self.epochs += _divide(self._epoch, self._block_epochs or 1)
        self._epoch, self._block_epochs, self._last_was_reported = None, 0, False

    def _take_block_edge(self, edge: str, at: Moment, details: dict[str, Any]) -> None:
        """Take the start or stop of a block, which is taken for as many epochs as it has, if they are not told."""
        if edge == "start" and not self._epoch:
            self._take_epoch_edge("start", at)
            count, number = details.get("epoch_count", 1), details.get("first_epoch_num")
            self._block_epochs = count if type(count) is int and 0 < count < MOST_EPOCHS else 1
            if self._epoch and type(number) is int:
                self._epoch.number = number
        elif edge == "stop" and self._block_epochs:
            self._take_epoch_edge("stop", at)

    def _take_eval_edge(self, edge: str, at: Moment) -> None:
        """Take the start or stop of a validation, or of the evaluation after training."""
        if edge == "start":
            self._eval = at
            if self._phase != "train":
                self._enter("evaluate", at)
        elif self._eval is None:
            raise StudyError("event eval_stop: there was no eval_start")
        else:
            if self._phase == "evaluate":
                self._phases.edge("evaluate", "end", at)
                self._phase = None
            elif self._epoch:
                self._epoch.eval_ns += at[1] - max(self._eval[1], self._epoch.begin[1])
            elif self.epochs:  # validation after the epoch's end belongs to it, as it does in ours
                last = self.epochs[-1]
                begun = max(min(self._eval[1], last.end[1]), last.begin[1])
                last.eval_ns, last.end = last.eval_ns + at[1] - begun, at
            self._eval = None

    def _take_stats(self, stats: dict[str, float]) -> None:
        """Take ``tracked_stats``: metrics of training, validation (``val_...``) and test (``test_...``)."""
        validation = {name.split("_", 1)[1]: value for name, value in stats.items()
                      if name.startswith(("val_", "validation_"))}  # fmt: skip
        tested = {name.removeprefix("test_"): value for name, value in stats.items() if name.startswith("test_")}
        others = ("val_", "validation_", "test_")
        training = {name: value for name, value in stats.items() if not name.startswith(others)}
        self._take_metrics(training, is_validation=False)
        self._take_metrics(validation, is_validation=True, is_test=False)
        self.test |= tested
        self.losses |= {f"test_{name}": tested[name] for name in ("loss",) if name in tested}

    def _take_metrics(self, metrics: dict[str, float], is_validation: bool, is_test: bool | None = None) -> None:
        """Take metrics of the epoch, or of the test set. is_test: None for validation after the run has stopped."""
        is_test = self._has_run if is_test is None else is_test
        epoch = self._epoch or (self.epochs[-1] if self.epochs else None)
        self.losses |= {
            f"val_{name}" if is_validation else name: metrics[name] for name in ("loss",) if name in metrics
        }
        if is_validation and is_test:
            self.test |= metrics
        elif is_validation and epoch is None:
            self._untrained |= metrics
        elif epoch:
            prefix = "val_" if is_validation else ""
            epoch.metrics |= {f"{prefix}{name}": value for name, value in metrics.items()}

    def _report_last(self) -> None:
        """Report the last epoch, unless it was reported."""
        if self.epochs and not self._last_was_reported:
            self._report(len(self.epochs), self.epochs[-1])
            self._last_was_reported = True


def parse_event(line: bytes, is_marked: bool = True) -> dict[str, Any] | None:
    """Parse the event in a line; None if there is none. is_marked: whether events begin with `MARK`."""
    if is_marked:
        _, mark, line = line.partition(MARK)
        if not mark:
            return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    has_time = isinstance(event, dict) and any(_is_time(event.get(name)) for name in ("time_ms", "time_ns"))
    return event if has_time and isinstance(event.get("key"), str) else None


def find_marked_events(line: bytes) -> list[dict[str, Any]]:
    """The events in a line of output; it has several if two ranks print at once."""
    if MARK not in line:
        return []
    if event := parse_event(line):
        return [event]
    _, *parts = line.split(MARK)
    *whole, last = parts
    # Behind an event that is not the last one may be what the other rank prints before its own, such as a tag.
    texts = [*(part[: part.rfind(b"}") + 1] for part in whole), last]
    return [event for text in texts if (event := parse_event(text, is_marked=False))]


def get_moment(event: dict[str, Any]) -> Moment:
    """The time of an event by this host's clocks: (wall, monotonic) in ns."""
    wall = int(event["time_ns"] if _is_time(event.get("time_ns")) else event["time_ms"] * 1_000_000)
    monotonic_ns = event.get("monotonic_ns")
    return wall, int(monotonic_ns) if _is_time(monotonic_ns) else wall - measure_zero_ns()


def choose_rank(event: dict[str, Any], progress: dict[int, Progress]) -> int | None:
    """The rank whose event it is: the one that it names, else the first one of the process to which it can belong.

    Programs whose ranks all print MLPerf's lines seldom name them. None for a validation that another rank told.
    progress: of the ranks that the process started, in their order.

    Raises:
        StudyError: its rank is no number.
    """
    first, key = next(iter(progress)), event["key"]
    if (rank := _get_named_rank(event)) is not None or len(progress) == 1:
        return first if rank is None else rank
    number = get_metadata(event).get("epoch_num")
    number = number if type(number) is int else None
    open_ranks = {each: state.epoch_begin for each, state in progress.items() if state.epoch_begin is not None}
    if key == "epoch_start":
        free = [each for each in progress if each not in open_ranks and _is_later(number, progress[each].last_number)]
        return next(iter(free), first)
    if key == "epoch_stop":
        of_number = [each for each in open_ranks if progress[each].last_number == number]
        return min(of_number or open_ranks, key=lambda each: progress[each].epoch_begin or (0, 0), default=first)
    if key in ("eval_start", "eval_stop"):
        return first if progress[first].is_in_evaluation == (key == "eval_stop") else None
    if key == "run_start":
        return next((each for each, state in progress.items() if not state.has_just_begun_run), first)
    if key == "run_stop":
        return next((each for each, state in progress.items() if state.is_in_run), first)
    return first


def _is_later(number: int | None, other: int | None) -> bool:
    """Whether an epoch may follow another one, by their numbers as far as they are known."""
    return number is None or other is None or number > other


def _get_named_rank(event: dict[str, Any]) -> int | None:
    """The rank that an event names, or None.

    Raises:
        StudyError: it is no number.
    """
    rank = event.get("rank", get_metadata(event).get("rank"))
    if rank is not None and type(rank) is not int and not (isinstance(rank, str) and re.fullmatch("[0-9]+", rank)):
        raise StudyError(f"event {event['key']}: is of rank {json.dumps(rank)[:60]}, which is no number")
    return None if rank is None else int(rank)


def get_metadata(event: dict[str, Any]) -> dict[str, Any]:
    """The metadata of an event; {} without any."""
    metadata = event.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _divide(epoch: Epoch, count: int) -> list[Epoch]:
    """As many equal epochs as a block has, of which the last one has the metrics."""

    def get_moment_after(epochs: int) -> Moment:
        wall, monotonic = (begin + (end - begin) * epochs // count
                           for begin, end in zip(epoch.begin, epoch.end, strict=True))  # fmt: skip
        return wall, monotonic

    return [
        Epoch(
            get_moment_after(place), get_moment_after(place + 1), epoch.eval_ns // count,
            epoch.metrics if place == count - 1 else {}, None if epoch.number is None else epoch.number + place,
        )
        for place in range(count)
    ]  # fmt: skip


def is_finite(values: dict[str, float]) -> bool:
    """Whether all values are finite."""
    return all(map(math.isfinite, values.values()))


def _is_time(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a time since 1970, or since a machine's start, in ns or ms."""
    return _is_number(value) and 0 <= value < MOST


def _limit_size(value: float) -> float:
    """A number as a float; infinite if it is so large that its square is no number."""
    return (math.inf if value > 0 else -math.inf) if abs(value) > MOST_OF_OWN else float(value)


def _is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is an integer or float, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)
