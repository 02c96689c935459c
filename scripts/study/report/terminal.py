"""Answers and findings as lines for a terminal."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from study.core.wording import counted
from study.report import answer
from study.report.findings.outcome import VERDICTS

WIDTH = 100


def answers(found: Iterable[answer.Answer]) -> Iterator[str]:
    """How many ranks each job deserves, with the rule; nothing without an answer."""
    for index, each in enumerate(found):
        if not index:
            yield "\nHow many ranks each job deserves:"
            yield _indented(answer.RULE, "  ", "  ")
        yield _indented(f"{each.series}: {counted(each.ranks, 'rank')}. {each.sentence}", "\n  ", "    ")


def findings(found: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Each finding, an entry of findings.json, with its verdict and sentence."""
    for each in found:
        yield f"\n  {each['title']}: {VERDICTS[each['verdict']].lower()}"
        yield _indented(each["sentence"], "    ", "    ")


def _indented(text: str, first: str, others: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=others)
