"""The reference of command lines for the docs, from the Makefile and the commands' own declarations."""

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator

import click

from study.commands.jobs import launch_training
from study.commands.main import VERBS
from study.commands.options import ConfigurationFile, OneOf
from study.core.paths import ROOT

# Steps that a reader calls by hand too; all others are called by rules, profiles and launchers.
BY_HAND = (launch_training,)
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


def describe_command_lines() -> str:
    """The page docs/reference/command-lines.md."""
    parts = [
        "# Command lines",
        "This page lists the targets of make, the verbs of `study`, and the options of the scripts that you may call. "
        "The workflow itself is started with `snakemake`; the [README](../../README.md#snakemake) has examples. This "
        "page is written by `make reference` from the Makefile and the code.",
        "## `make`",
        _format_table(("target", "meaning"), _read_targets()),
        _format_table(("variable", "meaning"), ((f"`{name}`", meaning) for name, meaning in SETTINGS.items())),
        "## `study`",
        "Installed by the set-up. [Which command answers my question](../which-command.md) has examples.",
        _format_table(
            ("verb", "meaning", "exit codes"),
            ((f"[`study {each.name}`](#study-{each.name})", each.short_help or "", each.exit_codes) for each in VERBS),
        ),
        *(part for each in VERBS for part in _describe(each, f"study {each.name}")),
        "## Scripts",
        "Call them with the environment's Python, in the folder in which Snakemake was started.",
        *(part for each in BY_HAND for part in _describe(each, f"scripts/{each.name}.py")),
        "### `scripts/lab.sh`",
        "The [network laboratory](../network-laboratory.md).",
        _format_table(("argument", "meaning"), _read_laboratory()),
        "## Measurements of this project's own code",
        "Those with options have `--help`.",
        _format_table(("program", "meaning"), _read_measurements()),
    ]
    return "\n\n".join(part.rstrip() if part.startswith("|") else textwrap.fill(part, 120) for part in parts) + "\n"


def _format_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [" | ".join(columns), *(" | ".join(row) for row in rows)]
    rule = "|".join("---" for _ in lines[0].split("|"))
    return f"| {lines[0]} |\n|{rule}|\n" + "".join(f"| {line} |\n" for line in lines[1:])


def _describe(command: click.Command, title: str) -> Iterator[str]:
    """The heading, the text and the parameters of a command."""
    yield f"### `{title}`"
    yield from (" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n"))
    yield _format_table(("argument", "meaning"), map(_describe_parameter, command.params))


def _describe_parameter(parameter: click.Parameter) -> tuple[str, str]:
    """The parameter as it is written, and what it means, with its choices and its default."""
    if not isinstance(parameter, click.Option):
        named = f"`{parameter.make_metavar(click.Context(click.Command(None)))}`"
        if isinstance(parameter.type, ConfigurationFile):
            return named, f"a file name in config/{parameter.type.folder} without .yaml"
        return named, "see above"
    parts = [parameter.help or ""]
    if isinstance(parameter.type, click.Choice | OneOf):
        names = parameter.type.choices if isinstance(parameter.type, click.Choice) else parameter.type.list_names()
        parts.append(f"one of {', '.join(map(str, names))}")
    if isinstance(parameter.default, str | int | float) and not parameter.is_flag:
        parts.append(f"by default {parameter.default}")
    value = "" if parameter.is_flag else " ..."
    return f"`{parameter.opts[0]}{value}`", "; ".join(part for part in parts if part)


def _read_targets() -> Iterator[tuple[str, str]]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return ((f"`{name}`", meaning) for name, meaning in re.findall(r"^([a-z-]+):[^#\n]*## (.*)$", text, re.M))


def _read_laboratory() -> Iterator[tuple[str, str]]:
    text = (ROOT / "scripts" / "lab.sh").read_text(encoding="utf-8")
    calls = re.findall(r"^#   scripts/lab\.sh (\S+(?: [A-Z]+)*) +([^\n]+)$", text, re.M)
    return ((f"`{call}`", meaning) for call, meaning in calls)


def _read_measurements() -> Iterator[tuple[str, str]]:
    """The programs in performance/ that read a command line, with the first sentence of each."""
    for path in sorted((ROOT / "performance").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "ArgumentParser(" in text:
            summary = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0]
            yield f"`{path.relative_to(ROOT).as_posix()}`", " ".join(summary.split())
