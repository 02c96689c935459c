"""How commands are declared and how they end, and the options and types of values that they share."""

import argparse
import functools
import importlib
import json
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from study.core import number_types, paths
from study.core.errors import StudyError, exit_with_message

if TYPE_CHECKING:
    from study.experiment.study import Study

PROGRAM = "study"
EXIT_CODES = "0 done, 1 error, 2 wrong arguments"
ERROR = 2  # exit code of an error where 1 says what the command found
# Help keeps to 80 columns; -h is short for --help.
SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 80, "show_default": True}
Command = TypeVar("Command", bound="Step")
Function = TypeVar("Function", bound=Callable[..., Any])


class Step(click.Command):
    """A command that a script in scripts/ starts."""

    def start(self) -> None:
        """Run as a program, with the arguments that it was called with."""
        run_program(self, Path(sys.argv[0]).name)


class Verb(Step):
    """A command of `study`.

    Args:
        page: of the documentation.
        exit_codes: where they are others than `EXIT_CODES`.
        reads_workflow: whether it reads the results or the configuration of the folder in which Snakemake is started.
        finds_fault: whether its function returns True for exit code 1; an error then has exit code 2.
    """

    def __init__(
        self, *args: Any, page: str, exit_codes: str = EXIT_CODES, reads_workflow: bool = True,
        finds_fault: bool = False, **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(*args, **more)
        self.epilog = f"Exit codes: {exit_codes}. More: {page}"
        self.exit_codes, self.reads_workflow, self.finds_fault = exit_codes, reads_workflow, finds_fault

    def invoke(self, ctx: click.Context) -> Any:
        """Run the function; of a verb that was typed after `study`, in a folder with the workflow only."""
        if not self.finds_fault:
            return self._invoke_in_workflow(ctx)
        if _result_or_exit(lambda: self._invoke_in_workflow(ctx)):
            sys.exit(1)
        return None

    def _invoke_in_workflow(self, ctx: click.Context) -> Any:
        if self.reads_workflow and ctx.parent is not None:
            from study.core import installed

            require_workflow(Path.cwd())
            for line in installed.warn_of_outdated_packages(Path(sys.prefix), paths.ROOT):
                print(f"warning: {line}", file=sys.stderr)
        return super().invoke(ctx)


class StepOfLists(Step):
    """A step whose options with ``multiple`` take several values at once, as Snakemake writes a list."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the option before each further value."""
        names = {name for param in self.params if param.multiple for name in param.opts}
        words, name = list[str](), ""
        for word in args:
            if word.startswith("-"):
                name = word
            elif name in names and words[-1] != name:
                words.append(name)
            words.append(word)
        return super().parse_args(ctx, words)


def step(name: str, cls: type[Step] = Step) -> Callable[[Callable[..., Any]], Step]:
    """Make a function the step of this name, which scripts/NAME.py starts."""
    return click.command(name, cls=cls, context_settings=SETTINGS)


def verb(name: str, question: str, **settings: Any) -> Callable[[Callable[..., Any]], Verb]:
    """Make a function the verb of this name, which answers ``question``. settings: as in `Verb`."""
    return click.command(name, cls=Verb, short_help=question, **{"context_settings": SETTINGS, **settings})


def run_program(command: click.Command, name: str) -> None:
    """Run a command as a program; what the user has to correct is one line on standard error."""
    exit_with_message(lambda: _run_once(command, name))


def _run_once(command: click.Command, name: str) -> None:
    try:
        command.main(prog_name=name, standalone_mode=False)
    except click.Abort:  # click's own for Ctrl-C
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        print(f"error: {' '.join(error.format_message().split())}", file=sys.stderr)
        sys.exit(error.exit_code)


def _result_or_exit(function: Callable[[], Any]) -> Any:
    """The function's result; an error ends the program with code 2, as 1 is for what was found."""
    results: list[Any] = []
    try:
        exit_with_message(lambda: results.append(function()))
    except SystemExit as end:
        sys.exit(ERROR if end.code == 1 else end.code)
    except Exception:  # Python's own exit code for it is 1
        traceback.print_exc()
        sys.exit(ERROR)
    return results[0]


class Parsed(click.ParamType):
    """A value that a function makes of the text; the text of its `ValueError` is the message."""

    def __init__(self, function: Callable[[str], Any], name: str = "x") -> None:
        self.function, self.name = function, name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value; a default that is no text is itself."""
        if not isinstance(value, str):
            return value
        try:
            return self.function(value)
        except (ValueError, argparse.ArgumentTypeError) as error:
            return self.fail(str(error), param, ctx)


class OneOf(click.ParamType):
    """One of the names in a collection of a module, which is imported for a value and for completion only."""

    name = "name"

    def __init__(self, module: str, collection: str) -> None:
        self.module, self.collection = module, collection

    def list_names(self) -> list[str]:
        """All names."""
        return list(getattr(importlib.import_module(self.module), self.collection))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name itself."""
        names = self.list_names()
        if value not in names:
            from study.core.validation import suggest_nearest

            self.fail(f"{value!r} is not one of {', '.join(names)}{suggest_nearest(value, names)}", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin so."""
        return [CompletionItem(name) for name in self.list_names() if name.startswith(incomplete)]


class ConfigurationFile(click.ParamType):
    """The name of a file in a folder of config/, without .yaml; whoever reads the file refuses a wrong one."""

    name = "name"

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names of the files that are there."""
        from study.core import configuration

        return [CompletionItem(name) for name in configuration.list_files(self.folder) if name.startswith(incomplete)]


def complete_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Have the shell complete a path."""
    return [CompletionItem(incomplete, type="file")]


def _require_text(text: str) -> str:
    if not text:
        raise ValueError("must be a folder")
    return text


WHOLE, COUNT = Parsed(number_types.parse_whole), Parsed(number_types.parse_count)
SECONDS, RATE = Parsed(number_types.parse_seconds), Parsed(number_types.parse_rate)
JSON, FOLDER = Parsed(json.loads, "json"), Parsed(_require_text, "dir")
PATH = click.Path(path_type=Path)
STUDY, MACHINE, GOAL = map(ConfigurationFile, ("studies", "machines", "prediction/goals"))

goal_option = click.option("--goal", type=GOAL, metavar="NAME", default="fastest", help="in config/prediction/goals")


def _load_planned(name: str) -> "Study":
    from study.experiment.expansion import load_planned_study

    return load_planned_study(name)


def _load_machine(name: str) -> dict[str, Any]:
    from study.machines.machine import load

    return load(name)


def load_study_on(machine: str, name: str) -> "tuple[Study, dict[str, Any]]":
    """A study as it would be planned on a machine, and the machine's settings."""
    from study.experiment.expansion import load_study

    settings = _load_machine(machine)
    return load_study(name, settings), settings


# The function gets the study as Snakemake planned it, and the machine's settings.
planned_study_option = click.option("--study", type=Parsed(_load_planned), required=True, metavar="STUDY")
machine_option = click.option("--machine", type=Parsed(_load_machine), required=True, metavar="NAME")


def study_options(function: Function) -> Function:
    """The options for a study's results; the function gets ``study``, ``machine`` and ``results_dir``.

    Where they are not given they are those that Snakemake would plan.
    """

    @functools.wraps(function)
    def call_resolved(
        study: str | None, named_study: str | None, machine: str | None, results_dir: str | None, **others: Any
    ) -> Any:
        from study.core import configuration

        if study and named_study not in (None, study):
            raise click.UsageError(f"two studies, {study} and {named_study}; name one")
        config = configuration.load_settings()
        machine = config["machine"] if machine is None else machine
        study = study or named_study or config.get("study") or configuration.choose_default_study(str(machine))[0]
        results_dir = config["results_dir"] if results_dir is None else results_dir
        return function(study=study, machine=machine, results_dir=results_dir, **others)

    by_default = "by default that of config/config.yaml"
    decorators = (
        click.argument("study", required=False, type=STUDY, metavar="[STUDY]"),
        click.option(
            "--study", "named_study", type=STUDY, metavar="STUDY", help=f"the same; {by_default}, else the machine's"
        ),
        click.option("--machine", type=MACHINE, metavar="NAME", help=by_default),
        click.option("--results-dir", type=FOLDER, metavar="DIR", shell_complete=complete_path, help=by_default),
    )
    return apply_decorators(call_resolved, decorators)


def apply_decorators(function: Callable[..., Any], decorators: Iterable[Callable[[Any], Any]]) -> Any:
    """The function with these decorators, the first of which stands on top."""
    return functools.reduce(lambda decorated, decorate: decorate(decorated), reversed(list(decorators)), function)


def require_workflow(folder: Path) -> None:
    """Raise `StudyError` if ``folder`` is not one in which this clone's workflow is started."""
    root = paths.ROOT
    if (folder / "scripts" / "study").is_dir() and not paths.is_same(folder, root):
        own = folder / ".venv" / "bin" / PROGRAM
        raise StudyError(
            f"{folder} is another clone than that of this command, {root}; use {own}, which make setup makes there"
        )
    if find_snakefile(folder) is None and not (folder / "config").is_dir():
        raise StudyError(
            f"{folder} has no Snakefile and no config: go to {root}, or to a folder of your own that uses it "
            f"({root}/docs/module.md)"
        )


def find_snakefile(folder: Path) -> Path | None:
    """The Snakefile that Snakemake would find in ``folder``; None without one."""
    places = ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile")  # Snakemake's own order
    return next((folder / place for place in places if (folder / place).is_file()), None)


def require_machine(machine: str, results_dir: str) -> None:
    """Raise `StudyError` for a machine that has neither results nor a file in config/machines."""
    from study.core import configuration, validation

    names = configuration.list_files("machines")
    if machine not in names and not (machine and Path(results_dir, machine, "runs").is_dir()):
        if reason := configuration.explain_unread_file("machines", machine):
            raise StudyError(f"--machine: {reason}")
        raise StudyError(
            f"--machine: there is no machine '{machine}' in config/machines and no {results_dir}/{machine}/runs"
            f"{validation.suggest_nearest(machine, names)}"
        )


def require_result_file(file: Path, study: str, machine: str, results_dir: str) -> None:
    """Raise `StudyError` for a file of a study's results that is not there, with the command that makes it."""
    if file.exists():
        return
    from study.core import configuration, validation

    require_machine(machine, results_dir)
    configuration.check_name("studies", study)
    command = f"study run {study}"
    if machine != "local":
        command += f" --machine {machine}, with a batch system also --profile and its folder in profiles"
    raise StudyError(f"{validation.shorten_path(file)} is not there; run the study first: {command}")


def load_contrib(name: str) -> ModuleType:
    """The module of this name in contrib/, which nothing imports, so that it can be deleted.

    Raises `StudyError` where it was.
    """
    from study.core.registry import submodule

    package, _, module = f"study.contrib.{name}".rpartition(".")
    above, _, part = package.rpartition(".")
    loaded = submodule(above, part, module)
    if loaded is None:
        raise StudyError(f"scripts/study/contrib, which has {name}, is not there; restore it")
    return loaded
