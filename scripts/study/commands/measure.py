"""The verb measure: how many ranks a training script deserves, in one line, in the script's own folder."""

import functools
import math
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from study.commands import analysis
from study.commands.options import COUNT, GOAL, SETTINGS, Parsed, verb
from study.commands.workflow import build_snakemake_line
from study.core import paths
from study.core.errors import StudyError

if TYPE_CHECKING:
    from study.commands.measured_command import MeasuredCommand, Partition

FOLDER = "scaling"  # beside the user's script
MACHINE = "here"
WORKS = {"fixed": "strong", "per_rank": "weak"}  # what stays the same when ranks are added: scaling mode
AVAILABLE = "available"
MOST_NAMED = 3  # files, in a message
QUIET = ("rules", "progress", "host", "reason")
# How Snakemake's lines begin that tell a user of one command nothing; others are shown, such as errors.
NOISE = ("Using ", "Config file ", "Assuming ", "Building DAG", "Conda environments", "Select jobs", "Execute ",
         "Complete log", "Elapsed time", "  --config chose it")  # fmt: skip


def parse_rank_counts(text: str) -> list[int] | str:
    """Rank counts with commas, ascending; or `AVAILABLE` as it is."""
    return text if text == AVAILABLE else analysis.parse_counts(text)


def parse_metric(text: str) -> tuple[str, str]:
    """(name, pattern) of ``NAME=PATTERN``; raises `ValueError` for another text."""
    name, separator, pattern = text.partition("=")
    if not (name and separator and pattern):
        raise ValueError(f"{text!r} must be NAME=PATTERN, such as throughput_samples_per_s='img/s: ([0-9.]+)'")
    return name, pattern


@verb(
    "measure", "How many ranks does your own script deserve?", page="docs/start.md", reads_workflow=False,
    context_settings={**SETTINGS, "allow_interspersed_args": False},
)  # fmt: skip
@click.option("--ranks", type=Parsed(parse_rank_counts), default=AVAILABLE, metavar="COUNTS", help="such as 1,2,4")
@click.option("--work", type=click.Choice(list(WORKS)), default="fixed", help="what more ranks leave alike")
@click.option("--repeats", type=COUNT, default=3, metavar="X", help="interleaved runs of each count")
@click.option("--metric", "metrics", type=Parsed(parse_metric), multiple=True, metavar="NAME=PATTERN",
              help="a number in the output")  # fmt: skip
@click.option("--success", metavar="PATTERN", help="a line that only complete runs print")
@click.option("--epochs", type=COUNT, default=1, metavar="X", help="that the script reports by events")
@click.option("--batch", type=COUNT, metavar="X", help="batch size of a rank")
@click.option("--python", metavar="FOLDER", help="virtual environment; default: the program's")
@click.option("--time-limit", type=COUNT, default=3600, metavar="X", help="seconds of a run")
@click.option("--goal", type=GOAL, metavar="NAME", help="another goal, as of study recommend")
@click.option("--name", metavar="NAME", help="default: the script's")
@click.option("--profile", type=click.Choice(["local", "slurm"]), default="local", help="slurm needs --partition")
@click.option("--partition", metavar="NAME", help="of Slurm, to submit the runs to; from a login node")
@click.option("--strict", is_flag=True, help="refuse more ranks than cores")
@click.option("--dry-run", is_flag=True, help="write scaling/ and print the plan only")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
def measure(
    ranks: list[int] | str, work: str, repeats: int, metrics: tuple[tuple[str, str], ...],
    success: str | None, epochs: int, batch: int | None, python: str | None, time_limit: int, goal: str | None,
    name: str | None, profile: str, partition: str | None, strict: bool, dry_run: bool, words: tuple[str, ...],
) -> None:  # fmt: skip
    """Run COMMAND on several rank counts, and print how many ranks it deserves.
    With {ranks}, torchrun or mpirun it is started once, else once per rank.
    """  # noqa: D205  one paragraph, so that the help fits on a screen
    from study.commands import measured_command
    from study.core import configuration
    from study.workloads import command

    if name and not configuration.NAME.fullmatch(name):
        raise StudyError(f"--name: {name!r} must be of letters, digits and _")
    if profile == "slurm" and not partition:
        raise StudyError("--profile slurm: name the partition too: --partition NAME")
    marked = measured_command.mark_ranks(words)
    nodes = measured_command.read_partition(partition) if partition else None
    gpus = nodes.gpus if nodes else _count_gpus()
    measured = measured_command.MeasuredCommand(
        name=name or measured_command.name_command(words),
        words=marked,
        folder=Path.cwd(),
        counts=_choose_slurm_counts(ranks, nodes, marked) if nodes else _choose_counts(ranks, gpus, strict),
        scaling=WORKS[work],
        repeats=repeats,
        epochs=epochs,
        batch_size=batch,
        prefix=measured_command.find_prefix(words, python, os.environ),
        metrics=dict(metrics),
        success=success,
        time_limit_s=time_limit,
        gpus=gpus,
        partition=nodes,
    )
    if why := command.find_script_fault({"command": marked, "environment": {}}, Path.cwd()):
        raise StudyError(why)
    _print(f"command: {' '.join(marked)}", _describe_start(measured), *_describe_variables())
    measured_command.write_files(measured)
    os.chdir(FOLDER)
    if dry_run:
        sys.exit(min(_run_snakemake(measured, measured.name, "--dry-run")[0], 1))
    from study.workflow import passes
    from study.workloads.command import placeholders

    written = _run_trial(measured)
    measured = measured_command.sort_written_files(measured, written)
    fresh = [each.removeprefix(placeholders.WRITTEN) for each in measured.fresh]
    for key, names in {"moved aside before each run": fresh, "shared by all runs": measured.reuses}.items():
        if names:
            _print(f"files that it wrote, {key}: {', '.join(names[:MOST_NAMED])}{' ...' if names[MOST_NAMED:] else ''}")
    os.chdir("..")
    measured_command.write_files(measured)
    os.chdir(FOLDER)
    code, _ = _run_snakemake(measured, measured.name)
    if code:
        _print(f"stopped; what was measured is kept in {FOLDER}/, and the same line goes on")
        sys.exit(code if code > passes.SIGNALLED else 1)
    _print_answer(measured, goal)


def _print(*lines: str) -> None:
    """Print progress to standard error, so that standard output has the answer only."""
    print(*lines, sep="\n", file=sys.stderr, flush=True)


def _count_gpus() -> int:
    """GPUs of this machine, by the NVIDIA driver; 0 without one."""
    from study.core import provenance

    return len(provenance.find_gpus()["found"])


def _choose_counts(ranks: list[int] | str, gpus: int, strict: bool) -> list[int]:
    """The rank counts to measure.

    Raises `StudyError` for more than the GPUs, and with strict for more than the cores.
    """
    from study.core import cores
    from study.core.wording import format_count

    usable = gpus or max(1, math.floor(cores.count_usable_cores()))
    if isinstance(ranks, str):
        return _list_doublings(usable)
    if (gpus or strict) and ranks[-1] > usable:
        what = format_count(usable, "GPU" if gpus else "core")
        raise StudyError(f"--ranks: {ranks[-1]}: this machine has {what}; give at most as many ranks")
    return ranks


def _list_doublings(most: int) -> list[int]:
    """1, 2, 4 and so on, up to ``most``."""
    return [2**power for power in range(most.bit_length())]


def _choose_slurm_counts(ranks: list[int] | str, nodes: "Partition", marked: Sequence[str]) -> list[int]:
    """The rank counts to measure in a partition; `AVAILABLE`: those of a node.

    Raises `StudyError` for more than it has, and for a command that starts its ranks itself and has more than a node.
    """
    from study.commands.measured_command import has_ranks

    starts_own = has_ranks(marked)
    most = nodes.ranks_per_node * (1 if starts_own else nodes.nodes)
    if isinstance(ranks, str):
        return _list_doublings(nodes.ranks_per_node)
    if ranks[-1] > most:
        where = "a node" if starts_own else f"partition {nodes.name}"
        raise StudyError(
            f"--ranks: {ranks[-1]}: {where} has {most} ranks, one for each {'GPU' if nodes.gpus else 'core'}"
            + ("; without torchrun and {ranks}, ranks on several nodes are started by srun" if starts_own else "")
        )
    return ranks


def _describe_start(measured: "MeasuredCommand") -> str:
    counts = ", ".join(map(str, measured.counts))
    if measured.starts_own_ranks:
        return f"started once for each run, with {{ranks}} = {counts}"
    return f"started once for each rank, on {counts} ranks, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"


def _describe_variables() -> Iterator[str]:
    from study.core import environment

    if removed := sorted(os.environ.keys() - environment.build_measuring_environment(os.environ).keys()):
        yield f"runs do not get {', '.join(removed)}; to set one, write env NAME=VALUE before the command"


def _run_snakemake(
    measured: "MeasuredCommand", study: str, *further: str, config: Sequence[str] = ()
) -> tuple[int, str]:
    """Run the workflow in the present folder: (its exit code, what it printed and was not shown).

    Of a trial, nothing is shown.
    """
    from study.workflow import passes

    hidden: list[str] = []

    def is_shown(text: str) -> bool:
        if study == measured.trial or text.startswith(NOISE):
            hidden.append(text)
            return False
        return True

    line = build_snakemake_line(
        study, None, None, "slurm" if measured.partition else "local", config, ["--quiet", *QUIET, *further]
    )
    ended = passes.run_passes(line, functools.partial(passes.run_snakemake, is_shown=is_shown))
    return ended.code, "\n".join(hidden)


def _run_trial(measured: "MeasuredCommand") -> list[str]:
    """Run the command once on the fewest ranks, uncounted; returns the files that it wrote.

    Raises `StudyError` if it does not end as it should, or shows no work.
    """
    from study.core.files import read_json
    from study.core.wording import format_count
    from study.records import failures
    from study.workflow import passes

    folder = "trial/" + Path(measured.results_dir).name
    _print(f"\nTrial, not counted: {format_count(measured.counts[0], 'rank')}")
    config = (f"results_dir={folder}", "show_each_block=false", "repeat_disturbed=0")
    code, printed = _run_snakemake(measured, measured.trial, config=config)
    if code > passes.SIGNALLED:
        sys.exit(code)
    path = next(Path(folder, MACHINE).glob("runs/*/*/*/record.json"), None)
    record = read_json(path) if path else None
    if path is None or record is None or record["status"] != "ok":
        shutil.rmtree(folder, ignore_errors=True)  # the next call tries again
        if record is None:
            _print(printed)
        failure = (
            record["failure"] if record else {"message": "it has no record, for the reason above", "kind": "error"}
        )
        remedy = f"start the command by hand in {measured.folder}, without input (< /dev/null)"
        if failure["kind"] == "timeout":
            remedy = f"give a larger --time-limit than {measured.time_limit_s} s if it needs more"
        raise StudyError(f"the trial failed: {failures.message(failure['message'])}; {remedy}")
    if record["unproven"]:
        shutil.rmtree(folder)
        raise StudyError(
            f"the trial ended with exit code 0, which alone shows no work: {record['unproven']}; give --success "
            "PATTERN, of a line that only complete runs print, or --metric"
        )
    _print(*_describe_trial(measured, record))
    written: list[str] = read_json(path.with_name("metrics.json"))["program"]["files"]["written"]
    return written


def _describe_trial(measured: "MeasuredCommand", record: Mapping[str, Any]) -> Iterator[str]:
    """How long the trial took, the numbers that were read, and about how long all runs take."""
    from study.core.wording import format_count, format_duration

    runtime_s, runs = record["runtime_s"], len(measured.counts) * measured.repeats
    values = {**(record["training"] or {}), **(record["quality"] or {})}
    numbers = [f"{name} {values[name]:g}" for name in measured.metrics if values.get(name) is not None]
    yield ", ".join([f"it took {runtime_s:.1f} s", *numbers])
    missing = [name for name in measured.metrics if values.get(name) is None]
    if missing:
        yield f"warning: no number for {', '.join(missing)}: its pattern found none in the output"
    yield f"{format_count(runs, 'run')} follow; if each takes as long: {format_duration(runs * runtime_s)}"


def _print_answer(measured: "MeasuredCommand", goal: str | None) -> None:
    """Print the answer with what it rests on, the table, the next counts as predicted, and where the report is."""
    from study.records import tidy
    from study.report import terminal

    folder = Path(paths.locate_study(Path(measured.results_dir, MACHINE), measured.name))
    place = {"study": measured.name, "machine": MACHINE, "results_dir": measured.results_dir}
    answers, predictions, tables = analysis.predict_study(**place, goal=goal, output=None)
    print("\n".join(terminal.format_answers(answers, shows_rule=False)).lstrip("\n"))
    evidence = [*([f"a line with {measured.success!r}"] if measured.success else []), *measured.metrics]
    print(f"  That the runs did their work is shown by: {', '.join(evidence) or 'the events that they reported'}.\n")
    print(*terminal.format_scaling(tidy.read_runs(folder / "runs.csv")), sep="\n")
    terminal.print_failures(folder / "runs.csv", f"{FOLDER}/{measured.results_dir}/{MACHINE}")
    print(*predictions, f"Tables: {FOLDER}/{tables}", f"Report: {FOLDER}/{folder}/report.html", sep="\n")
