"""The command ``study``: one verb for each question."""

import click

from study.commands import analysis, measure, measurements, results, workflow
from study.commands.options import EXIT_CODES, PROGRAM, SETTINGS, Verb, run_program
from study.core import isolation
from study.core.errors import StudyError, exit_with_message

SHELLS = ("bash", "zsh", "fish")
# In the order of use.
VERBS: tuple[Verb, ...] = (
    measure.measure, workflow.plan, workflow.run, results.status, results.findings, results.report, analysis.recommend,
    analysis.predict, analysis.tune, analysis.check, results.compare, results.export, results.trace, measurements.gpu,
)  # fmt: skip


def main() -> None:
    """The console script."""
    exit_with_message(isolation.require_isolation)
    run_program(study, PROGRAM)


class Verbs(click.Group):
    """All verbs, in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of use."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb and its arguments; an unknown verb is told with those that there are."""
        if args[0] not in self.commands and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"there is no verb {args[0]!r}; the verbs are {', '.join(self.commands)}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Only the verbs with their questions, so that all fits on a screen; the last line tells of --help."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, each.get_short_help_str(80)) for name, each in self.commands.items()])


@click.group(
    cls=Verbs,
    context_settings=SETTINGS,
    subcommand_metavar="VERB [ARGUMENT]...",
    invoke_without_command=True,
    epilog=f"Each verb has --help. Exit codes: {EXIT_CODES}. More: docs/which-command.md",
)
@click.pass_context
def study(ctx: click.Context) -> None:
    """Measure how training scales, what it costs, and how many GPUs it deserves."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for each_verb in VERBS:
    study.add_command(each_verb)


@study.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell: bash, zsh or fish.

    For bash: eval "$(study completion bash)", in ~/.bashrc.
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise StudyError(f"this version of click completes nothing for {shell}; use one of {', '.join(SHELLS)}")
    click.echo(completion_class(study, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())


if __name__ == "__main__":
    main()
