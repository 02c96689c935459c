"""The verdict of each check of the GPUs, and the report as Markdown."""

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from study.core.errors import StudyError

OK, NOT_OK, UNCHECKED = "ok", "not ok", "could not be checked"
HEADER = "| check | GPU | verdict | measured | expected | reason |\n|---|---|---|---|---|---|\n"


class CannotCheck(Exception):
    """A check cannot be made here; the message is the reason."""


@dataclass(frozen=True)
class Verdict:
    """One check. gpu: a UUID, or empty for a check of the host. reason: empty only if the check is ok."""

    section: str
    check: str
    verdict: str
    measured: str = ""
    expected: str = ""
    gpu: str = ""
    reason: str = ""


class Verdicts(list[Verdict]):
    """All verdicts. section, gpu: what the next ones are of."""

    section = gpu = ""

    def judge(self, check: str, problem: str | None, measured: object = "", expected: str = "") -> None:
        """Add a check that is ok, or not ok because of ``problem``."""
        self._add(check, NOT_OK if problem else OK, problem or "", measured, expected)

    def leave_unchecked(self, check: str, reason: object, expected: str = "") -> None:
        """Add a check that cannot be made."""
        self._add(check, UNCHECKED, str(reason), "", expected)

    def _add(self, check: str, verdict: str, reason: str, measured: object, expected: str) -> None:
        """Append a verdict, of the current section and GPU."""
        reason = " ".join(reason.split())
        self.append(Verdict(self.section, check, verdict, str(measured), expected, self.gpu, reason))

    def run_section(self, section: str, judge: Callable[[], object]) -> None:
        """Make the checks of a section; what ``judge`` raises becomes a verdict."""
        self.section, self.gpu = section, ""
        try:
            judge()
        except CannotCheck as reason:
            self.leave_unchecked("all further checks", reason)
        except StudyError as error:
            self.judge("all further checks", str(error))
        except Exception as error:  # also of a driver's bindings: the other sections are still checked
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            self.judge("all further checks", f"{type(error).__name__} at {where}: {error}")


def summarize(verdicts: Iterable[Verdict]) -> str:
    """How many checks have each verdict, in a line."""
    counts = Counter(each.verdict for each in verdicts)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in (OK, NOT_OK, UNCHECKED))


def write_markdown(verdicts: Iterable[Verdict], facts: Mapping[str, str]) -> str:
    """The report: what is not ok, then all checks by section. facts: of the host, {name: value}."""
    verdicts = list(verdicts)
    text = f"# GPU check\n\n{summarize(verdicts)}.\n\n"
    text += "".join(f"- {name}: {value}\n" for name, value in facts.items())
    if wrong := [each for each in verdicts if each.verdict == NOT_OK]:
        text += "\n## Not ok\n\n"
        text += "".join(f"- {each.section}: {each.check} {each.gpu}: {each.reason}\n" for each in wrong)
    for section in dict.fromkeys(each.section for each in verdicts):
        text += f"\n## {section}\n\n{HEADER}"
        text += "".join(_format_row(each) for each in verdicts if each.section == section)
    return text


def _format_row(each: Verdict) -> str:
    """Format a verdict as a row of Markdown."""
    cells = (each.check, each.gpu, each.verdict, each.measured, each.expected, each.reason)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
