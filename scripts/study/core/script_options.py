"""The options that a script declares for argparse, read from its text, which is faster than importing it."""

import ast
from dataclasses import dataclass
from pathlib import Path

from study.core.paths import SCRIPTS

SHARED_PARSER = SCRIPTS / "study" / "core" / "command_line.py"  # declares the options of `of_a_study`


@dataclass(frozen=True)
class ScriptOption:
    """One argument, as declared. choices: of a literal list. default: of a literal; None without one."""

    name: str
    help: str
    choices: tuple[str, ...] = ()
    default: object = None
    is_flag: bool = False
    metavar: str | None = None
    nargs: object = None

    @property
    def is_positional(self) -> bool:
        """Whether it is given without a name."""
        return not self.name.startswith("-")


@dataclass(frozen=True)
class Script:
    """A script's summary, the first paragraph of its docstring on one line, and its arguments."""

    summary: str
    options: tuple[ScriptOption, ...]


def of_script(path: Path) -> Script | None:
    """What a script declares; None if it has no command line. Raises `OSError` if it cannot be read."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = _calls(tree)
    names = {name for name, _ in calls}
    if "ArgumentParser" not in names:
        return None
    if "of_a_study" in names:
        calls = [*_calls(ast.parse(SHARED_PARSER.read_text(encoding="utf-8"))), *calls]
    summary = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())
    return Script(summary, tuple(_option(call) for name, call in calls if name == "add_argument"))


def _calls(tree: ast.Module) -> list[tuple[str, ast.Call]]:
    """The calls of methods, and of functions of modules: (name, call)."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [(call.func.attr, call) for call in calls if isinstance(call.func, ast.Attribute)]


def _option(call: ast.Call) -> ScriptOption:
    given = {word.arg: word.value for word in call.keywords}
    choices = given.get("choices")
    listed = choices.elts if isinstance(choices, ast.List | ast.Tuple) else []
    return ScriptOption(
        name=ast.literal_eval(call.args[-1]),
        help=str(_constant(given.get("help")) or ""),
        choices=tuple(str(_constant(each)) for each in listed),
        default=_constant(given.get("default")),
        is_flag=_constant(given.get("action")) == "store_true",
        metavar=str(_constant(given["metavar"])) if "metavar" in given else None,
        nargs=_constant(given.get("nargs")),
    )


def _constant(node: ast.AST | None) -> object:
    """The value of a literal; None for anything else, and where there is none."""
    return node.value if isinstance(node, ast.Constant) else None
