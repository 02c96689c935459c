"""The reference of command lines for the docs, from the Makefile and the options that scripts declare."""

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from study.core import command_line
from study.core.paths import ROOT

# Scripts that a reader calls by hand; all others are called by rules, profiles and launchers.
CALLED = ("show_status", "recommend", "predict", "tune", "check", "compare_machines", "read_storage", "launch_training")
SETTINGS = {  # variables of make that are no program's
    "STUDY": "a file name in `config/studies/` without `.yaml`",
    "MACHINE": "a file name in `config/machines/` without `.yaml`",
    "GOAL": "a file name in `config/prediction/goals/` without `.yaml`",
    "ACCEPT": "`1`: make the latest repeats the reference",
    "CASES": "number of cases of `make fuzz`",
    "ROUNDS": "number of rounds of `make chaos`",
    "POINTS": "number of points of `make soak`",
    "SEED": "random seed of `make fuzz`, `make chaos` and `make soak`",
    "PART": "part of `make test-long`: `1` to `7`, `today` or `all`; by default `today`, from `1` on Monday",
    "MINUTES": "`make test-long` begins no test later, and lists the tests that it did not run",
    "PYTHON": "the interpreter for the set-up, `python3.11` by default",
}
OPTIONS = "| argument | meaning |\n|---|---|\n"


def command_lines() -> str:
    """The page docs/reference/command-lines.md."""
    parts = [
        "# Command lines",
        "The workflow itself is started with `snakemake`; the [README](../../README.md#snakemake) has examples. This "
        "page is written by `make reference` from the Makefile and the scripts.",
        "## `make`",
        "| target | meaning |\n|---|---|\n" + "".join(f"| `{name}` | {says} |\n" for name, says in _targets()),
        "| variable | meaning |\n|---|---|\n" + "".join(f"| `{name}` | {says} |\n" for name, says in SETTINGS.items()),
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


def _targets() -> Iterator[tuple[str, str]]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return (match.groups() for match in re.finditer(r"^([a-z-]+):[^#\n]*## (.*)$", text, re.M))  # type: ignore[misc]


def _laboratory() -> Iterator[tuple[str, str]]:
    text = (ROOT / "scripts" / "lab.sh").read_text(encoding="utf-8")
    yield from re.findall(r"^#   scripts/lab\.sh (\S+(?: [A-Z]+)*) +([^\n]+)$", text, re.M)


def _script(path: Path) -> list[str]:
    """The parts about one script; none if it has no command line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = _calls(tree)
    names = {name for name, _ in calls}
    if "ArgumentParser" not in names:
        return []
    if command_line.of_a_study.__name__ in names:
        calls = [*_calls(ast.parse(Path(command_line.__file__).read_text(encoding="utf-8"))), *calls]
    rows = "".join(_option(call) for name, call in calls if name == "add_argument")
    says = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())
    return [f"### `{path.relative_to(ROOT).as_posix()}`", says, *([OPTIONS + rows] if rows else [])]


def _calls(tree: ast.Module) -> list[tuple[str, ast.Call]]:
    """The calls of methods, and of functions of modules: (name, call)."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [(call.func.attr, call) for call in calls if isinstance(call.func, ast.Attribute)]


def _option(call: ast.Call) -> str:
    """The row of an argument."""
    name = ast.literal_eval(call.args[-1])
    given = {word.arg: word.value for word in call.keywords}
    says = _constant(given.get("help")) or ""
    if isinstance(choices := given.get("choices"), ast.List | ast.Tuple):
        says = f"{says}; one of {', '.join(str(_constant(each)) for each in choices.elts)}".removeprefix("; ")
    if (default := _constant(given.get("default"))) not in (None, ""):
        says = f"{says}; by default {default}".removeprefix("; ")
    is_flag = not name.startswith("-") or _constant(given.get("action")) == "store_true"
    return f"| `{name if is_flag else name + ' ...'}` | {says} |\n"


def _constant(node: ast.AST | None) -> object:
    """The value of a literal; None for anything else, and where there is none."""
    return node.value if isinstance(node, ast.Constant) else None
