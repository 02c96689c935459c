"""The command ``study``: one verb for each question, over the scripts, which declare the arguments.

A verb's script is imported when the verb runs. Help and completion read its options from its text, so they are fast.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from study.core import isolation, paths, script_options
from study.core.errors import StudyError, exit_with_message
from study.workflow import passes

PROGRAM = "study"
# Options whose values are names of files: {option: folder in config/}.
NAMED_FILES = {"--study": "studies", "STUDY": "studies", "--machine": "machines", "--goal": "prediction/goals"}
OF_FILES = ("POINTS.csv", "[LABEL=]FOLDER", "--output", "--results-dir")
METAVARS = {"--study": "STUDY", "--machine": "NAME", "--goal": "NAME", "--output": "PATH", "--results-dir": "DIR"}
EXIT_CODES = "Exit codes: 0 done, 1 error, 2 wrong arguments."
SHELLS = ("bash", "zsh", "fish")
FORCING = {"-f", "--force", "-F", "--forceall", "-R", "--forcerun"}  # Snakemake's options that run jobs once more


@dataclass(frozen=True)
class Verb:
    """A verb. question: which it answers. script: in scripts/; None for those of this module.

    in_workflow: whether it reads the results or configuration of the folder in which Snakemake is started.
    page: of the documentation. exit_codes: where they are others than `EXIT_CODES`.
    """

    question: str
    script: str | None
    page: str
    in_workflow: bool = True
    exit_codes: str = EXIT_CODES


VERBS = {
    "plan": Verb("What would a study run, and what would it cost?", None, "docs/start.md"),
    "run": Verb("Run a study, make its results and print its findings.", None, "docs/start.md"),
    "status": Verb("How far has a study come, and what failed?", "show_status", "docs/failures.md"),
    "findings": Verb("What did a study find, and which runs failed?", "show_findings", "docs/comparing-runs.md"),
    "report": Verb("Where is the report of a study?", "show_report", "docs/results.md"),
    "recommend": Verb("How many GPUs does a job of a study deserve?", "recommend", "docs/prediction.md"),
    "predict": Verb(
        "How many GPUs, from times in a CSV file or in logs?", "predict", "docs/prediction.md", in_workflow=False
    ),
    "tune": Verb("Which setting of Horovod or TensorFlow is worth changing?", "tune", "docs/tuning.md"),
    "check": Verb(
        "Is a study slower or less accurate than its references?", "check", "docs/performance-references.md",
        exit_codes="Exit codes: 0 no regression, 1 regression, 2 error, such as an unknown study.",
    ),
    "compare": Verb(
        "How do several machines or code versions compare?", "compare_machines", "docs/machines/README.md",
        in_workflow=False,
    ),
    "export": Verb("Pack a study's results into an archive, or for MLflow.", "export_results", "docs/results.md"),
    "trace": Verb(
        "Where did a run's time go, in Perfetto?", "export_trace", "docs/telemetry.md", in_workflow=False
    ),
    "gpu": Verb(
        "Does every measurement work on this machine's GPUs?", "gpu_check", "docs/gpu-check.md", in_workflow=False,
        exit_codes="Exit codes: 0 no check failed, 1 a check failed, 2 no GPU or wrong arguments.",
    ),
}  # fmt: skip


def main() -> None:
    """The console script."""
    exit_with_message(isolation.require)
    exit_with_message(_start)


def _start() -> None:
    """Run the verb; what is wrong in its arguments is one line and exit code 2."""
    try:
        command.main(prog_name=PROGRAM, standalone_mode=False)
    except click.Abort:
        sys.exit(1)
    except click.ClickException as error:
        print(f"error: {' '.join(error.format_message().split())}", file=sys.stderr)
        sys.exit(error.exit_code)


class Verbs(click.Group):
    """All verbs; each is built when it is asked for."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb and its arguments; an unknown verb is told with those that there are."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"there is no verb {args[0]!r}; the verbs are {', '.join(self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of use."""
        return [*VERBS, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb; None if there is none of this name."""
        if cmd_name in OWN:
            return OWN[cmd_name]
        if cmd_name in VERBS:
            return ScriptCommand(cmd_name, VERBS[cmd_name])
        return self.commands.get(cmd_name)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Only the verbs, so that all fits on a screen; the last line tells of --help."""
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The questions in full; no script is read for them."""
        with formatter.section("Verbs"):
            others = [(name, each.get_short_help_str(60)) for name, each in self.commands.items()]
            formatter.write_dl([*((name, verb.question) for name, verb in VERBS.items()), *others])


class ScriptCommand(click.Command):
    """A verb that is a script. Its parameters are for help and completion; the script parses what was typed."""

    def __init__(self, name: str, verb: Verb) -> None:
        self.verb, self.path = verb, paths.SCRIPTS / f"{verb.script}.py"
        found = script_options.of_script(self.path) if self.path.is_file() else None
        params = [_parameter(each) for each in found.options] if found else []
        super().__init__(
            name, callback=self.start, params=params, help=found.summary if found else verb.question, epilog=_more(verb)
        )
        self.context_settings = {"ignore_unknown_options": True, "allow_extra_args": True}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leave all to the script, but ``--help`` and completion."""
        if ctx.resilient_parsing or {"-h", "--help"} & set(args):
            return super().parse_args(ctx, args)
        ctx.args = args
        return args

    def invoke(self, ctx: click.Context) -> None:
        """Run the script's own main in this process."""
        self.start(ctx.args)

    def start(self, arguments: Sequence[str]) -> None:
        """Run the script with ``arguments``; raises `StudyError` where it is not there or has no workflow."""
        if not self.path.is_file():
            raise StudyError(
                f"{PROGRAM} {self.name}: scripts/{self.verb.script}.py is not in this version; use a newer"
            )
        if self.verb.in_workflow:
            from study.core import installed  # asks for packages' versions: not for help

            require_workflow(Path.cwd())
            for line in installed.other_lock(Path(sys.prefix), paths.ROOT):
                print(f"warning: {line}", file=sys.stderr)
        run_script(self.path, f"{PROGRAM} {self.name}", arguments)


def run_script(path: Path, shown: str, arguments: Sequence[str]) -> None:
    """Run a script in this process as if it was called. shown: as which its messages name it."""
    sys.path.insert(0, str(path.parent))
    sys.argv = [shown, *arguments]
    module = __import__(path.stem)
    start: Callable[[], object] = getattr(module, "run", None) or module.main  # `run` chooses its exit code itself
    start()


def require_workflow(folder: Path) -> None:
    """Raise `StudyError` if ``folder`` is not one in which this clone's workflow is started."""
    root = paths.ROOT
    if (folder / "scripts" / "study").is_dir() and not paths.is_same(folder, root):
        own = folder / ".venv" / "bin" / PROGRAM
        raise StudyError(
            f"{folder} is another clone than that of this command, {root}; use {own}, which make setup makes there"
        )
    if snakefile(folder) is None and not (folder / "config").is_dir():
        raise StudyError(
            f"{folder} has no Snakefile and no config: go to {root}, or to a folder of your own that uses it "
            f"({root}/docs/module.md)"
        )


def snakefile(folder: Path) -> Path | None:
    """The Snakefile that Snakemake would find in ``folder``; None without one."""
    places = ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile")  # Snakemake's own order
    return next((folder / place for place in places if (folder / place).is_file()), None)


def _more(verb: Verb) -> str:
    return f"{verb.exit_codes} More: {verb.page}"


def _parameter(option: script_options.ScriptOption) -> click.Parameter:
    """A click parameter that shows and completes an argument of argparse, and parses nothing."""
    complete = _completion(option)
    if option.is_positional:
        shown = option.metavar or option.name.upper()
        many = -1 if option.nargs in ("+", "*") else 1
        return click.Argument(
            [option.name], nargs=many, required=False, metavar=f"[{shown}]" if option.nargs == "?" else shown,
            shell_complete=complete,
        )  # fmt: skip
    says = option.help
    if option.choices:
        says = f"{says}; one of {', '.join(option.choices)}".removeprefix("; ")
    if option.default not in (None, "") and "default" not in says:
        says = f"{says} (default {option.default})".strip()
    if option.is_flag:
        return click.Option([option.name], is_flag=True, help=says)
    shown = option.metavar or METAVARS.get(option.name, "X")
    return click.Option([option.name], help=says, metavar=shown, shell_complete=complete)


Completion = Callable[[click.Context, click.Parameter, str], list[Any]]


def _completion(option: script_options.ScriptOption) -> Completion | None:
    shown = option.metavar or option.name
    if kind := NAMED_FILES.get(option.name) or NAMED_FILES.get(shown):
        return _names_of(kind)
    if option.choices:
        return lambda ctx, param, begun: [each for each in option.choices if each.startswith(begun)]
    if option.name in OF_FILES or shown in OF_FILES:
        return lambda ctx, param, begun: [CompletionItem(begun, type="file")]
    return None


def _names_of(kind: str) -> Completion:
    def names(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
        from study.core import configuration  # reads YAML and schemas: not for help

        return [name for name in configuration.files(kind) if name.startswith(begun)]

    return names


def _own(name: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function the command of a verb that is no script."""
    return click.command(
        name, epilog=_more(VERBS[name]),
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )  # fmt: skip


def _of_snakemake(function: Callable[..., None]) -> Callable[..., None]:
    """The parameters of the verbs that start Snakemake."""
    by_default = "by default as in config/config.yaml, else"
    for each in reversed(
        (
            click.argument("study", required=False, metavar="[STUDY]", shell_complete=_names_of("studies")),
            click.option("--study", "named", metavar="STUDY", help="the same", shell_complete=_names_of("studies")),
            click.option(
                "--machine", metavar="MACHINE", help=f"{by_default} local", shell_complete=_names_of("machines")
            ),
            click.option("--profile", metavar="PROFILE", help="of Snakemake; by default local"),
            click.option("--config", "-C", metavar="KEY=VALUE", multiple=True, help="as in config/config.yaml"),
            click.pass_context,
        )
    ):
        function = each(function)
    return function


def command_line(
    study: str | None, named: str | None, machine: str | None, profile: str | None, config: Sequence[str],
    further: Sequence[str],
) -> list[str]:  # fmt: skip
    """The command line of Snakemake. further: its own options and targets. Raises `StudyError` for two studies."""
    extra = list(further)
    if study and study.startswith("-"):  # an option of Snakemake in the place of the study
        extra, study = [study, *extra], None
    if study and "/" in study:  # a target
        extra, study = [study, *extra], None
    if study and named and study != named:
        raise StudyError(f"{PROGRAM}: two studies, {study} and {named}; name one")
    study = study or named
    require_workflow(Path.cwd())
    if snakefile(Path.cwd()) is None:
        raise StudyError(f"{Path.cwd()} has no Snakefile; write the one of {paths.ROOT}/docs/module.md")
    pairs = [*([f"study={study}"] if study else []), *([f"machine={machine}"] if machine else []), *config]
    program = Path(sys.executable).with_name("snakemake")
    return [str(program), *profiles(profile or "local"), *extra, *(["--config", *pairs] if pairs else [])]


def profiles(name: str) -> list[str]:
    """Snakemake's options for a profile: a folder, or a name in profiles/ of this folder or of the clone."""
    here = Path.cwd()
    places = (here / "profiles" / name, paths.ROOT / "profiles" / name)
    found = next((str(place) for place in places if place.is_dir()), name)
    if (here / "profiles" / "default").is_dir():  # Snakemake applies it itself
        return ["--profile", found]
    return ["--profile", found, "--workflow-profile", str(paths.ROOT / "profiles" / "default")]


@_own("plan")
@_of_snakemake
def plan(ctx: click.Context, **given: Any) -> None:
    """Print what a study would run, and what it would cost. Starts nothing.

    Further options are Snakemake's, such as --quiet host for the reason of each job.
    """
    line = command_line(**given, further=ctx.args)
    os.execv(line[0], [line[0], "-n", *line[1:]])  # noqa: S606  a list, without a shell


@_own("run")
@_of_snakemake
def run(ctx: click.Context, **given: Any) -> None:
    """Run a study, make its results and print its findings. Finished runs are not run again.

    Further options are Snakemake's: -n for a dry run, --forcerun train, or the files to make instead of all.
    """
    wanted = command_line(**given, further=ctx.args)
    is_forced = bool(FORCING & set(ctx.args))  # another pass would run all of it again
    ended = passes.all_of(wanted, most=1 if is_forced else None)
    if ended.code:
        sys.exit(ended.code if ended.code > passes.SIGNALLED else 1)
    if {"-n", "--dry-run", "--dryrun"} & set(ctx.args) or any("/" in each for each in ctx.args) or not ended.planned:
        return
    arguments = [word for key, value in ended.planned.items() for word in (f"--{key.replace('_', '-')}", value)]
    sys.stdout.flush()
    run_script(paths.SCRIPTS / "show_findings.py", f"{PROGRAM} findings", arguments)


OWN = {"plan": plan, "run": run}

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


@click.command(
    cls=Verbs,
    context_settings=SETTINGS,
    subcommand_metavar="VERB [ARGUMENT]...",
    invoke_without_command=True,
    epilog=f"Each verb has --help. {EXIT_CODES} More: docs/which-command.md",
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Measure how training scales, what it costs, and how many GPUs it deserves."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell: bash, zsh or fish.

    For bash: eval "$(study completion bash)", in ~/.bashrc.
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise StudyError(f"this version of click completes nothing for {shell}; use one of {', '.join(SHELLS)}")
    click.echo(found(command, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())
