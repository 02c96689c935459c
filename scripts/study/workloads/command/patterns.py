"""Numbers that the patterns of a benchmark find in a program's output, in the units of their metrics."""

from __future__ import annotations

import contextlib
import functools
import math
import re
import signal
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from study.core import units
from study.core.measured_units import (
    Unit,
    convert_number,
    find_count,
    find_unit_before,
    find_unit_behind,
    is_convertible,
    parse_unit,
)
from study.core.quantities import MARKS, SPACES, parse_duration, parse_number, remove_colours
from study.core.throughput_units import find_owner

# Columns that a pattern may fill, and their units; other names are columns of quality.
OF_TRAINING = {
    "throughput_samples_per_s": "samples/s",
    "time_per_epoch_s": "s/epoch",
    "time_per_step_s": "s/step",
}
LAST, FIRST = "last", "first"
CHOICES: Mapping[str, Callable[[Sequence[float]], float]] = {
    LAST: lambda values: values[-1],
    FIRST: lambda values: values[0],
    "mean": statistics.fmean,
    "minimum": min,
    "maximum": max,
    "sum": math.fsum,
}
RANK, JOB = OWNERS = ("rank", "job")
LONGEST_SEARCH_S = 0.2  # processor time of a metric in a line; a plain pattern takes 1 ms in the longest one
LONGEST_NUMBER = 400  # characters around a match in which its number and its unit may go on
MOST, MOST_OF_OWN = 1e15, 1e100  # of a time or a throughput, and of another metric
DIGITS = r"(?:\\d|\[[^\]]*(?:0-9|\\d)[^\]]*\]|[0-9])(?:[+*?]|\{[0-9,]*\})?"  # what takes digits in a pattern
BLANK = rf"(?:[{SPACES}]|\\s)[+*?]?"
BEFORE = re.compile(r"[0-9](\.|[eE][-+]|(\.|[eE][-+]?)?[0-9])$")  # a number up to the first character of a part of it
SIGN = re.compile(r"(^|[\s:=(\[,;|])-$")
WITH_COMMA = re.compile(  # with marks between thousands, or with a decimal comma
    r"[-+]?([0-9]{1,3}([,'][0-9]{3})+(\.[0-9]+)?|([0-9]+|[0-9]{1,3}(\.[0-9]{3})+),[0-9]+)([eE][-+]?[0-9]+)?"
)
OF_NUMBERS = r"[-+0-9.,'eE:_]*"
# Which rank prints a line, as [rank1], Rank 1:, [GPU1], [1,1]<stdout> of mpirun and [default1] of torchrun.
PRINTER = re.compile(
    r"(?<![A-Za-z0-9])(?:rank|gpu|default|worker|process)[\s:=#]*([0-9]+)\b|\[[0-9]+,([0-9]+)\]<std", re.I
)
TIMES = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d([.,]\d+)?")
VARYING = re.compile(rf"{PRINTER.pattern}|{TIMES.pattern}|[0-9]*\.[0-9]+", re.I)  # in lines of one step by two ranks
MOST_HEADS = 1000  # beginnings of lines that are compared
GREEDY = re.compile(r"(?<!\\)\.[*+](?!\?)")
WRAPPED = re.compile(r"^(tensor|array|(np|numpy)\.float(32|64)|float(32|64))\(")  # before a number, as Python prints it
NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)\b", re.I)
# An epoch's number, and what is before it: lines of another form may count from another number.
EPOCH = re.compile(r"(?<![A-Za-z0-9_-])(ep(?:och)?\.?[\"'\s:=#(\[]*(?:0(?=[0-9]))?)([0-9]+(?:\.[0-9]+)?)", re.I)
# A number and its unit, which may follow in a group.
SPLIT = re.compile(rf"([-+]?[0-9.,{MARKS}{SPACES}]*[0-9.](?:[eE][-+]?[0-9]+)?)[{SPACES}]?([A-Za-z\u00b5\u03bc]\S*)?")
ENDS = ",;:.)]}|%\"'"  # behind a number, if a pattern takes all up to the next space


@dataclass(frozen=True)
class Metric:
    """A metric of the benchmark's file.

    Args:
        name: the metric's.
        pattern: with one group, around the number.
        unit: in which the program prints it where its output does not say so; None if not declared.
        which: of several matches, one of `CHOICES`.
        owner: whose a throughput is, one of `OWNERS`; None if not declared.
        is_optional: whether the program may leave it out.
    """

    name: str
    pattern: re.Pattern[str]
    unit: Unit | None = None
    which: str = LAST
    owner: str | None = None
    is_optional: bool = False

    @functools.cached_property
    def parts(self) -> tuple[str, str]:
        """The pattern before its group, and behind it."""
        begin, end = _find_group(self.pattern.pattern)
        return self.pattern.pattern[:begin], self.pattern.pattern[end:]

    @functools.cached_property
    def wanted(self) -> Unit | None:
        """The unit of its values; None without one."""
        if self.name not in OF_TRAINING:
            of_name = units.find_unit(self.name)
            return parse_unit(of_name) if of_name else self.unit
        if self.unit and self.unit.rate:  # such as tokens/s: this program's samples are tokens
            return Unit(f"{self.unit.rate.item}/s", rate=replace(self.unit.rate, per="all", seconds=1.0))
        return parse_unit(OF_TRAINING[self.name])

    @property
    def has_unknown_owner(self) -> bool:
        """Whether it is a throughput of which nothing says whether it is that of one rank or of all."""
        is_rate = bool(self.wanted and self.wanted.rate and not self.wanted.rate.time_of)
        is_said = self.owner or (self.unit and self.unit.rate and self.unit.rate.per != "all")
        return is_rate and not is_said and not find_owner(re.sub(r"\\", "", self.pattern.pattern))

    @property
    def is_loss(self) -> bool:
        """Whether it is a loss by its name or its pattern: one that is not finite means that training diverged."""
        return "loss" in f"{self.name} {self.parts[0]}".lower()


def parse_metric(name: str, declared: str | Mapping[str, Any]) -> Metric:
    """The metric of a declaration, which may be its pattern alone.

    Raises:
        ValueError: with the key of what cannot be.
    """
    keys: dict[str, Any] = {"pattern": declared} if isinstance(declared, str) else dict(declared)
    try:
        pattern = re.compile(keys["pattern"], re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{keys['pattern']!r} is no regular expression: {error}") from None
    if pattern.groups != 1:
        raise ValueError(
            f"{pattern.pattern!r} has {pattern.groups} groups; give one, around the number: 'images/s: ([0-9.]+)'"
        )
    unit = parse_unit(keys["unit"]) if "unit" in keys else None
    metric = Metric(name, pattern, unit, keys.get("which", LAST), keys.get("of"), keys.get("optional", False))
    wanted = metric.wanted
    if unit and name in OF_TRAINING:
        column = parse_unit(OF_TRAINING[name])
        is_rate = bool(unit.rate) and not (unit.rate and unit.rate.time_of)
        if not unit.is_known or is_rate != bool(column.rate):
            raise ValueError(f"unit: {unit.text!r} is none of {name}; expected one such as {column.text}")
    elif unit and wanted and not is_convertible(unit, wanted):
        raise ValueError(f"unit: {unit.text!r}, but the metric's name says {wanted.text}; correct one of them")
    if metric.owner and not (wanted and wanted.rate and not wanted.rate.time_of):
        raise ValueError("of: only a throughput, such as one with unit: tokens/s, is of a rank or of the job")
    if metric.owner == JOB and unit and unit.rate and unit.rate.per != "all":
        raise ValueError(f"of: job, but unit: {unit.text} is of one {unit.rate.per}; correct one of them")
    return metric


class SearchLimit:
    """Context that `TimeoutError` ends after `LONGEST_SEARCH_S`: a pattern may backtrack without end.

    Only in the main thread, the one that a signal interrupts. Processor time counts, so a standstill does not.
    """

    def __enter__(self) -> None:
        self._is_active = True
        signal.signal(signal.SIGVTALRM, self._end)
        signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_SEARCH_S)

    def __exit__(self, *_: object) -> None:
        self._is_active = False  # a signal may be on its way
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _end(self, *_: object) -> None:
        if self._is_active:
            raise TimeoutError


def explain_slow_search(pattern: re.Pattern[str], line: str) -> str:
    """Why a pattern was given up at a line of the output, and what to write."""
    return (
        f"{_quote(pattern.pattern)} was given up: it took more than {LONGEST_SEARCH_S:g} s for the line "
        f"{_quote(line)}; write no repeats within repeats, such as ([0-9]+ *)+, and few .*"
    )


class PatternReader:
    """Reads the metrics of a benchmark from a program's output, line by line.

    Only in the main thread, where `SearchLimit` ends searches.

    Args:
        metrics: of the benchmark.
        ranks: of the run.
        nodes: of the run.
        is_shared: whether several ranks print into this output.
    """

    def __init__(self, metrics: Iterable[Metric], ranks: int = 1, nodes: int = 1, is_shared: bool = False) -> None:
        self._matches = {each.name: _Matches(each, ranks, nodes, is_shared) for each in metrics}
        self._epochs: Mapping[str, float] = {}  # {form of the line: the epoch that it named last}

    def take(self, line: bytes) -> bool:
        """Take a line of the output, without its end; returns whether some pattern matches it."""
        text = remove_colours(line.decode(errors="replace"))
        if marker := EPOCH.search(text):
            self._epochs = {**self._epochs, marker[1]: float(marker[2])}
        takes = [self._search(matches, text) for matches in self._matches.values()]
        return any(takes)

    def _search(self, matches: _Matches, text: str) -> bool:
        """Take a line for one metric, which is given up if that takes too long; returns whether its pattern matches."""
        try:
            with SearchLimit():
                return matches.take(text, self._epochs)
        except TimeoutError:
            matches.give_up(text)
            return False

    def read_values(self) -> dict[str, tuple[float | None, str | None]]:
        """{metric: (its value, None)}, or (None, why there is none) if its pattern matched something; else two None."""
        return {name: each.read_value(self._epochs) for name, each in self._matches.items()}

    def count_printers(self) -> dict[str, int]:
        """{throughput that is taken for that of all ranks: how many ranks print it here}."""
        return {name: number for name, each in self._matches.items() if (number := each.count_printers())}

    def list_divergences(self) -> list[str]:
        """``name nan`` of each loss that was not finite at the end of the output."""
        return [f"{name} {each.not_finite}" for name, each in self._matches.items()
                if each.metric.is_loss and each.not_finite]  # fmt: skip


class _Matches:
    """The numbers that the pattern of a metric found. not_finite: ``nan`` behind the last number."""

    def __init__(self, metric: Metric, ranks: int, nodes: int, is_shared: bool) -> None:
        self.metric, self.not_finite, self._fault = metric, "", ""
        self._ranks, self._nodes, self._is_shared = ranks, nodes, is_shared
        self._results: list[tuple[float, str | None]] = []  # of each match, or why it is no number
        self._shared: list[tuple[float, str | None]] = []  # of lines with several matches
        self._last: re.Match[str] | None = None  # its last match
        self._heads: Counter[str] = Counter()  # of lines with a match: what is before the number, and how often
        self._printers: set[str] = set()  # the ranks that lines with a match name
        self._epochs: Mapping[str, float] = {}  # that the output had named last at the last match
        self._missed = ""  # a number that the pattern does not take, behind the last match or anywhere
        head, tail = metric.parts
        unit = find_unit_behind(re.sub(f"^{BLANK}", "", tail))[0]
        self._head = _compile_or_none(head) if (not tail or unit) and re.search("[a-z]{2}", head, re.I) else None
        divided = unit.text.split("/") if unit else []
        turned = "/".join(map(re.escape, reversed(divided)))
        self._turned = re.compile(rf"[0-9.]+ ?{turned}\b.*") if len(divided) == 2 else None

    def take(self, text: str, epochs: Mapping[str, float]) -> bool:
        """Take a line; returns whether the pattern matches it. epochs: that the output named last, by their form."""
        if self._fault:
            return False
        match = self.metric.pattern.search(text)
        if match is None:
            self._take_unmatched(text)
            return False
        try:
            result: tuple[float, str | None] = (read_number(match, self.metric, self._ranks, self._nodes), None)
        except ValueError as error:
            result = (math.nan, str(error))
        # Two ranks that print at once may print into one line, and digits of one follow those of the other.
        has_more = self._is_shared and self.metric.pattern.search(text, max(match.end(), match.start() + 1))
        results = self._shared if has_more else self._results
        if self.metric.which == LAST:
            results.clear()
            self._missed = ""
        results.append(result)
        if not has_more:
            word = NOT_FINITE.match(WRAPPED.sub("", (match[1] or "").strip()))
            self._epochs, self.not_finite = epochs, word[0] if word else ""
            self._take_printer(match)
        return True

    def give_up(self, text: str) -> None:
        """Take no line after this one, for which its pattern took too long."""
        self.not_finite, self._fault = "", f"its pattern {explain_slow_search(self.metric.pattern, text)}"

    def read_value(self, epochs: Mapping[str, float]) -> tuple[float | None, str | None]:
        """(The value, None), or (None, why there is none). epochs: that the output named last, by their form."""
        metric, results = self.metric, self._results or self._shared
        if self._fault:
            return None, self._fault
        if self.not_finite:
            return None, f"its pattern found {self.not_finite!r}, which is not a finite number"
        if not results:
            return None, None
        if metric.which in (LAST, FIRST):
            results = [results[0 if metric.which == FIRST else -1]]
        if metric.which != FIRST and self._missed:
            return None, f"its pattern does not take the number of a line that has {_quote(self._missed)}"
        earlier = [form for form, epoch in self._epochs.items() if epochs[form] - epoch >= 1]
        if metric.which == LAST and earlier:
            last, end = (each[earlier[0]] for each in (self._epochs, epochs))
            return None, f"its last match is of epoch {last:g}, and the output goes on to epoch {end:g}"
        if why := next((why for _, why in results if why), None):
            return None, why
        value = CHOICES[metric.which]([number for number, _ in results])
        if metric.name in OF_TRAINING and not 0 < value <= MOST:
            return None, f"its pattern found {value:g}, which no time and no throughput is"
        if not abs(value) <= MOST_OF_OWN:
            return None, f"its pattern found {value:g}, which is too large"
        return value, None

    def _take_printer(self, match: re.Match[str]) -> None:
        """Keep what shows which rank prints a line of an output of several."""
        self._last = match
        if not self._is_shared:
            return
        if named := PRINTER.search(match.string):
            self._printers.add(named[1] or named[2])
        head = VARYING.sub("", match.string[: match.start(1)])
        if re.search("[0-9]", head) and len(self._heads) < MOST_HEADS:
            self._heads[head] += 1

    def count_printers(self) -> int:
        """How many ranks print a throughput into this output that is taken for that of all; 0 for other metrics.

        Ranks are known by their numbers in the lines, else by lines that are alike up to their throughput, such as
        those of one step, as often as there are ranks.
        """
        rate = self.metric.wanted.rate if self.metric.wanted else None
        if self._fault or self._last is None or rate is None or rate.time_of or not self._is_of_all(self._last):
            return 0
        is_printed_by_all = self._ranks > 1 and set(self._heads.values()) == {self._ranks}
        return max(len(self._printers), self._ranks if is_printed_by_all else 1)

    def _is_of_all(self, match: re.Match[str]) -> bool:
        """Whether a throughput is taken for that of all ranks: it is the same number on any number of them."""
        with contextlib.suppress(ValueError):
            return read_number(match, self.metric, 1, 1) == read_number(match, self.metric, 2, 2)
        return False

    def _take_unmatched(self, text: str) -> None:
        """Keep what stands in a line where the pattern expects its number, if it is one in another form, or nan."""
        match = self._head.search(text) if self._head else None
        rest = WRAPPED.sub("", text[match.end() :].lstrip()) if match else ""
        if word := NOT_FINITE.match(rest):
            self.not_finite = word[0]
        elif match and re.match(r"[-+.]?[0-9]", rest):
            self._missed, self.not_finite = text[match.start() :].strip(), ""
        elif self._turned and (turned := self._turned.search(text)):
            self._missed = turned[0]


def read_number(match: re.Match[str], metric: Metric, ranks: int = 1, nodes: int = 1) -> float:
    """The number in a match's group, in the metric's unit.

    Digits behind the group that the pattern names, such as those of ``([0-9]+),[0-9]+``, are meant to be left out; so
    are those before the comma of ``,([0-9]+)``.

    Raises:
        ValueError: it is a part of a number, as 1 of ``1,234``, or in no form or unit that can be read.
    """
    text, line = match[1] or "", match.string
    before = line[max(0, match.start(1) - LONGEST_NUMBER) : match.start(1)]
    behind = line[match.end(1) : match.end(1) + LONGEST_NUMBER]
    if text and (_is_cut_before(text, before, metric) or _is_cut_behind(text, behind, metric)
                 or _is_cut_at_comma(text, before, behind, metric)):  # fmt: skip
        left = re.search(rf"([-+]?[0-9]{OF_NUMBERS}[{SPACES}]?|\w+|-)$", before)
        right = re.match(rf"[{SPACES}]?{OF_NUMBERS}", behind)
        whole = f"{left[0] if left else ''}{text}{right[0] if right else ''}".rstrip(f":{SPACES}")
        raise ValueError(f"its pattern takes {_quote(text)} of {_quote(whole)}")
    if other := _find_other_match(match, metric):
        raise ValueError(f"its pattern found {_quote(text)}, and {_quote(other)} before it in the line; leave out .*")
    stripped = WRAPPED.sub("", text.strip()).rstrip(ENDS).lstrip("([{\"'")
    if not math.isnan(seconds := parse_duration(stripped)):
        return _convert(seconds, parse_unit("s"), metric, (before, text, behind), ranks, nodes)
    split = SPLIT.fullmatch(stripped)
    number = parse_number(split[1] if split else stripped)
    if not math.isfinite(number):
        raise ValueError(f"its pattern found {_quote(text)}, which is not a finite number")
    unit, touching = find_unit_behind(split[2] if split and split[2] else behind)
    if metric.unit and touching == metric.unit.text:
        unit = metric.unit
    elif touching and unit is None and not metric.parts[1].startswith(touching):
        raise ValueError(f"its pattern found {_quote(text)}, and the unit {_quote(touching)} behind it is not known")
    return _convert(number, unit, metric, (before, text, behind), ranks, nodes)


def _convert(
    number: float, unit: Unit | None, metric: Metric, line: tuple[str, str, str], ranks: int, nodes: int
) -> float:
    """A number in the metric's unit. unit: that stands behind it. line: before the number, its text, and behind.

    Raises:
        ValueError: it is in another unit.
    """
    (before, text, behind), wanted, factor = line, metric.wanted, 1.0
    if unit and not unit.is_known:  # only a multiple, as of 4.0k, or the metric's own unit
        factor, unit = unit.factor, None
    if wanted is None or not wanted.is_known:
        if unit and not re.sub(f"^{BLANK}", "", metric.parts[1]).startswith(unit.text):
            raise ValueError(f"its pattern found {_quote(text)}, which is in {unit.text}; give unit: {unit.text}")
        return number * factor * (unit.factor if unit else 1.0)
    title = re.search(r"[^0-9,;|]*$", before)
    title_text = title[0] if title else ""
    said = unit or find_unit_before(title_text) or metric.unit
    stated = said or wanted
    if wanted.item and not (said and (said.item or said.rate)):
        factor /= find_count(before, behind, wanted.item)
    if stated.rate and stated.rate.per == "all":
        declared = metric.unit.rate.per if metric.unit and metric.unit.rate else "all"
        owner = metric.owner or find_owner(title_text) or declared
        stated = replace(stated, rate=replace(stated.rate, per="all" if owner == JOB else owner))
    elif metric.owner == JOB and stated.rate:
        raise ValueError(f"its pattern found {_quote(text)} in {stated.text}, but it is declared as of: job")
    try:
        return convert_number(number * factor, stated, wanted, ranks, nodes)
    except ValueError as error:
        raise ValueError(f"its pattern found {_quote(text)}, which {error}") from None


def _is_cut_before(text: str, before: str, metric: Metric) -> bool:
    """Whether characters before a group belong to its number, and the pattern does not name them."""
    head, first = metric.parts[0], text[0]
    if BEFORE.search(before + first):
        return True
    if not first.isdigit():
        return False
    last = before[-1:]
    if last == "-" and SIGN.search(before):
        return not head.endswith("-")
    if last.isalpha() or last == "_":
        is_named = head.endswith(last) and not head.endswith(f"\\{last}")
        return not (is_named or re.search(r"(\[[^\]]*\]|\\w)[+*?]?$", head))
    if last == ":" and before[-2:-1].isdigit():
        return not re.search(f"{DIGITS}:$", head)
    is_third = re.match(r"[0-9]{3}(?![0-9])", text) and re.search(rf"(?<![0-9.,/:])[0-9]{{1,3}}[{SPACES}]$", before)
    return bool(is_third) and not re.search(f"{DIGITS}{BLANK}$", head)


def _is_cut_behind(text: str, behind: str, metric: Metric) -> bool:
    """Whether characters behind a group belong to its number, and the pattern does not name them."""
    last, tail = text[-1], metric.parts[1]
    if last.isalpha():
        return behind[:1].isalpha() and not tail.startswith(behind[:1])
    if not last.isdigit():
        return bool(re.match(r"[0-9]", behind)) and not re.match(DIGITS, tail)
    if re.match(r"[0-9]", behind):
        return not re.match(DIGITS, tail)
    if match := re.match(r"[A-Za-z.:_](?=[0-9])|[eE][-+](?=[0-9])", behind):
        mark = re.escape(match[0][0])
        return not (tail.startswith(mark) or re.match(rf"\[[^\]]*{mark}", tail))
    if re.fullmatch(rf"[0-9]{{1,3}}([{SPACES}][0-9]{{3}})*", text) and re.match(
        rf"[{SPACES}][0-9]{{3}}(?![0-9])", behind
    ):
        return not re.match(f"{BLANK}{DIGITS}", tail)
    return False


def _is_cut_at_comma(text: str, before: str, behind: str, metric: Metric) -> bool:
    """Whether the group is a part of a number such as ``1,234`` or, with a decimal comma, ``0,5``."""
    head, tail = metric.parts
    if head.endswith(","):  # of a line of a CSV file
        return False
    left = re.search(r"[0-9.,']*$", before)
    right = None if tail.startswith(",") else re.match(r"[0-9.,']*([eE][-+]?[0-9]+)?", behind)
    whole = "".join([left[0] if left else "", text, right[0] if right else ""]).strip(".,'")
    return whole != text.strip(".,'") and bool(WITH_COMMA.fullmatch(whole))


def _find_other_match(match: re.Match[str], metric: Metric) -> str | None:
    """An earlier number of the line that the pattern also fits, and its ``.*`` skipped; None without one."""
    head, tail = metric.parts
    if not GREEDY.search(head) or tail.endswith("$"):
        return None
    other = metric.pattern.search(match.string[: match.start(1)])
    return other[1] if other else None


def _find_group(pattern: str) -> tuple[int, int]:
    """(Where the capturing group of a pattern begins, where it ends)."""
    is_in_class, begin, depths = False, 0, [False]
    place = 0
    while place < len(pattern):
        character = pattern[place]
        if character == "\\":
            place += 1
        elif is_in_class:
            is_in_class = character != "]" or pattern[place - 1] == "["
        elif character == "[":
            is_in_class = True
        elif character == "(":
            is_group = pattern[place + 1 : place + 2] != "?" or pattern.startswith("(?P<", place)
            begin = place if is_group else begin
            depths.append(is_group)
        elif character == ")" and depths.pop():
            return begin, place + 1
        place += 1
    return 0, len(pattern)


def _compile_or_none(pattern: str) -> re.Pattern[str] | None:
    """A part of a pattern; None if it is no pattern by itself, as the begin of ``(?:a|b (c))``."""
    try:
        return re.compile(pattern, re.ASCII)
    except re.error:
        return None


def _quote(text: str) -> str:
    """Text in quotes for messages, cut off after 40 characters."""
    return repr(text[:40])
