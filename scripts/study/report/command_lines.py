"""The reference of command lines for the docs, from the Makefile and the options that scripts declare."""

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from study.core import script_options
from study.core.paths import ROOT

# Scripts that a reader calls by hand; all others are called by rules, profiles and launchers.
CALLED = (
    "show_status",
    "recommend",
    "predict",
    "tune",
    "check",
    "compare_machines",
    "export_results",
    "read_storage",
    "launch_training",
)
SETTINGS = {  # variables of make that are no program's
    "STUDY": "a file name in `config/studies/` without `.yaml`",
    "MACHINE": "a file name in `config/machines/` without `.yaml`",
    "GOAL": "a file name in `config/prediction/goals/` without `.yaml`",
    "ACCEPT": "`1`: make the latest repeats the reference",
    "CASES": "number of cases of `make fuzz`",
    "ROUNDS": "number of rounds of `make chaos`",
    "POINTS": "number of points of `make soak`",
    "SEED": "random seed of `make fuzz`, `make chaos` and `make soak`",
    "TIMES": "how often `make replicate` runs the study; by default 8",
    "ONLY": "`make faults`: only faults with this in their name or group",
    "SINCE": "`make faults` does not try again the faults that passed at this commit or a later one",
    "SLOWED": "`1`: `make faults` on a quarter of the machine's CPU time; needs root",
    "PART": "part of `make test-long`: `1` to `7`, `today` or `all`; by default `today`, from `1` on Monday",
    "MINUTES": "`make test-long` begins no test later, and lists the tests that it did not run; `make gpu` "
    "ends after so long, by default 10",
    "WITH": "what `make setup` installs too: `pytorch`, `test`, `docs`, or several of them in quotes",
    "TAG": "`make dist` writes nothing unless this tag is that of the last commit and of its version",
    "PYTHON": "the interpreter for the set-up, 3.11 or 3.12; by default that of `.venv`, else the first on PATH",
}
OPTIONS = "| argument | meaning |\n|---|---|\n"


def command_lines(verbs: Mapping[str, tuple[str, str | None, str]]) -> str:
    """The page docs/reference/command-lines.md.

    verbs: of the command `study`, {name: (meaning, script or None, exit codes)}.
    """
    parts = [
        "# Command lines",
        "This page lists the targets of make, the verbs of `study`, and the options of the scripts that you may call. "
        "The workflow itself is started with `snakemake`; the [README](../../README.md#snakemake) has examples. This "
        "page is written by `make reference` from the Makefile and the scripts.",
        "## `make`",
        "| target | meaning |\n|---|---|\n" + "".join(f"| `{name}` | {says} |\n" for name, says in _targets()),
        "| variable | meaning |\n|---|---|\n" + "".join(f"| `{name}` | {says} |\n" for name, says in SETTINGS.items()),
        "## `study`",
        "Installed by the set-up. [Which command answers my question](../which-command.md) has examples.",
        "| verb | meaning | exit codes |\n|---|---|---|\n"
        + "".join(_verb_row(name, *verb) for name, verb in verbs.items()),
        "## Scripts",
        "Call them with the environment's Python, in the folder in which Snakemake was started.",
        *(part for name in CALLED for part in _script(ROOT / "scripts" / f"{name}.py")),
        "### `scripts/lab.sh`",
        "The [network laboratory](../network-laboratory.md).",
        OPTIONS + "".join(f"| `{call}` | {says} |\n" for call, says in _laboratory()),
        "## Measurements of this project's own code",
        *(part for path in sorted((ROOT / "performance").glob("*.py")) for part in _script(path)),
    ]
    return "\n\n".join(part.rstrip() if part.startswith("|") else textwrap.fill(part, 120) for part in parts) + "\n"


def _verb_row(name: str, meaning: str, script: str | None, codes: str) -> str:
    """The row of a verb; a script that another version has is not named."""
    calls = f" It calls `scripts/{script}.py`." if script and (ROOT / "scripts" / f"{script}.py").is_file() else ""
    return f"| `study {name}` | {meaning}{calls} | {codes} |\n"


def _targets() -> Iterator[tuple[str, str]]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return (match.groups() for match in re.finditer(r"^([a-z-]+):[^#\n]*## (.*)$", text, re.M))  # type: ignore[misc]


def _laboratory() -> Iterator[tuple[str, str]]:
    text = (ROOT / "scripts" / "lab.sh").read_text(encoding="utf-8")
    yield from re.findall(r"^#   scripts/lab\.sh (\S+(?: [A-Z]+)*) +([^\n]+)$", text, re.M)


def _script(path: Path) -> list[str]:
    """The parts about one script; none if it has no command line."""
    found = script_options.of_script(path)
    if found is None:
        return []
    rows = "".join(map(_row, found.options))
    heading = f"### `{path.relative_to(ROOT).as_posix()}`"
    return [heading, found.summary, *([OPTIONS + rows] if rows else [])]


def _row(option: script_options.ScriptOption) -> str:
    """The row of an argument."""
    says = option.help
    if option.choices:
        says = f"{says}; one of {', '.join(option.choices)}".removeprefix("; ")
    if option.default not in (None, ""):
        says = f"{says}; by default {option.default}".removeprefix("; ")
    takes_value = not option.is_positional and not option.is_flag
    return f"| `{option.name} ...` | {says} |\n" if takes_value else f"| `{option.name}` | {says} |\n"
