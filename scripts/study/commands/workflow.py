"""The verbs that start Snakemake: plan and run; and a study that is run several times."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from study.commands import results
from study.commands.options import (
    COUNT,
    MACHINE,
    PROGRAM,
    SETTINGS,
    STUDY,
    Verb,
    apply_decorators,
    find_snakefile,
    load_study_on,
    require_workflow,
    step,
    study_options,
    verb,
)
from study.core import paths
from study.core.errors import StudyError

FORCING = {"-f", "--force", "-F", "--forceall", "-R", "--forcerun"}  # Snakemake's options that run jobs once more
DRY = {"-n", "--dry-run", "--dryrun"}
# What is no option of a verb is Snakemake's.
OPEN_SETTINGS: dict[str, Any] = {**SETTINGS, "ignore_unknown_options": True, "allow_extra_args": True}


def declare_snakemake_verb(name: str, question: str) -> Callable[[Callable[..., Any]], Verb]:
    """A verb that starts Snakemake; the function gets its context and the command line."""

    def declare(function: Callable[..., Any]) -> Verb:
        def call_with_line(ctx: click.Context, **given: Any) -> Any:
            return function(ctx, build_snakemake_line(**given, further=ctx.args))

        call_with_line.__doc__ = function.__doc__
        by_default = "by default as in config/config.yaml, else"
        decorators = (
            verb(name, question, page="docs/start.md", reads_workflow=False, context_settings=OPEN_SETTINGS),
            click.argument("study", required=False, type=STUDY, metavar="[STUDY]"),
            click.option("--study", "named_study", type=STUDY, metavar="STUDY", help="the same"),
            click.option("--machine", type=MACHINE, metavar="MACHINE", help=f"{by_default} local"),
            click.option("--profile", default="local", metavar="PROFILE", help="of Snakemake"),
            click.option("--config", "-C", metavar="KEY=VALUE", multiple=True, help="as in config/config.yaml"),
            click.pass_context,
        )
        declared: Verb = apply_decorators(call_with_line, decorators)
        return declared

    return declare


def build_snakemake_line(
    study: str | None, named_study: str | None, machine: str | None, profile: str, config: Sequence[str],
    further: Sequence[str],
) -> list[str]:  # fmt: skip
    """The command line of Snakemake. further: its own options and targets. Raises `StudyError` for two studies."""
    extra = list(further)
    if study and (study.startswith("-") or "/" in study):  # an option or a target in the place of the study
        extra, study = [study, *extra], None
    if study and named_study and study != named_study:
        raise StudyError(f"{PROGRAM}: two studies, {study} and {named_study}; name one")
    study = study or named_study
    require_workflow(Path.cwd())
    if find_snakefile(Path.cwd()) is None:
        raise StudyError(f"{Path.cwd()} has no Snakefile; write the one of {paths.ROOT}/docs/module.md")
    pairs = [*([f"study={study}"] if study else []), *([f"machine={machine}"] if machine else []), *config]
    program = Path(sys.executable).with_name("snakemake")
    return [str(program), *list_profile_options(profile), *extra, *(["--config", *pairs] if pairs else [])]


def list_profile_options(name: str) -> list[str]:
    """Snakemake's options for a profile: a folder, or a name in profiles/ of this folder or of the clone."""
    here = Path.cwd()
    places = (here / "profiles" / name, paths.ROOT / "profiles" / name)
    folder = next((str(place) for place in places if place.is_dir()), name)
    if (here / "profiles" / "default").is_dir():  # Snakemake applies it itself
        return ["--profile", folder]
    return ["--profile", folder, "--workflow-profile", str(paths.ROOT / "profiles" / "default")]


@declare_snakemake_verb("plan", "What would a study run, and what would it cost?")
def plan(ctx: click.Context, line: list[str]) -> None:
    """Print what a study would run, and what it would cost. Starts nothing.

    Further options are Snakemake's, such as --quiet host for the reason of each job.
    """
    os.execv(line[0], [line[0], "-n", *line[1:]])  # noqa: S606  a list, without a shell


@declare_snakemake_verb("run", "Run a study, make its results and print its findings.")
def run(ctx: click.Context, line: list[str]) -> None:
    """Run a study, make its results and print its findings. Finished runs are not run again.

    Further options are Snakemake's: -n for a dry run, --forcerun train, or the files to make instead of all.
    """
    from study.workflow import passes

    is_forced = bool(FORCING & set(ctx.args))  # another pass would run all of it again
    ended = passes.run_passes(line, most_passes=1 if is_forced else None)
    if ended.code:
        sys.exit(ended.code if ended.code > passes.SIGNALLED else 1)
    if DRY & set(ctx.args) or any("/" in each for each in ctx.args) or not ended.planned:
        return
    sys.stdout.flush()
    ctx.invoke(results.findings, named_study=None, **ended.planned)


@step("replicate")
@study_options
@click.option("--times", type=COUNT, default=8, help="how often")
@click.option("--profile", default="local", help="of Snakemake")
@click.option("--output", help="a folder for the table; by default in the results")
def replicate(study: str, machine: str, results_dir: str, times: int, profile: str, output: str | None) -> None:
    """Run a study several times afresh, and say whether the intervals of its findings hold.

    Each time has results of its own, so this resumes where it stopped. It prints the table and writes it as CSV,
    Markdown, LaTeX and HTML.
    """
    from study.report.findings import replication
    from study.report.page.page import read_findings
    from study.workflow import passes

    planned, _ = load_study_on(machine, study)
    if not planned.findings:
        raise StudyError(f"study {planned.name}: declares no findings, so there is nothing to compare; add findings")
    folder = Path(results_dir, "replicates", planned.name)
    outcomes = []
    for number in range(1, times + 1):
        print(f"replicate {number} of {times}", file=sys.stderr, flush=True)
        config = (f"results_dir={folder / str(number)}",)
        code = passes.run_passes(build_snakemake_line(planned.name, None, machine, profile, config, ())).code
        if code > passes.SIGNALLED:
            sys.exit(code)
        if code:
            raise StudyError(
                f"{folder / str(number)}: the study did not finish; correct the error above, then start this again"
            )
        outcomes.append(read_findings(Path(paths.locate_study(folder / str(number) / machine, planned.name))))
    table = replication.make_table(planned.name, outcomes)
    Path(output or folder).mkdir(parents=True, exist_ok=True)
    table.write_to(Path(output or folder))
    print(table.markdown())
