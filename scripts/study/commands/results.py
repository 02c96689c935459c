"""The verbs that tell of a study's results, or hand them to other programs."""

from pathlib import Path

import click

from study.commands.options import (
    PATH,
    complete_path,
    load_contrib,
    require_machine,
    require_result_file,
    study_options,
    verb,
)
from study.core import paths
from study.core.errors import StudyError


@verb("status", "How far has a study come, and what failed?", page="docs/failures.md")
@study_options
def status(study: str, machine: str, results_dir: str) -> None:
    """Show a study's progress: runs done, running and failed, with reasons. Only reads, so it is always safe."""
    import collections

    from study.core import configuration
    from study.core.wording import format_count
    from study.experiment import earlier_attempts
    from study.experiment.expansion import load_study
    from study.instruments import disturbance
    from study.machines.machine import is_on_launching_host, load
    from study.records import attempts, run_states

    require_machine(machine, results_dir)
    settings = earlier_attempts.override_further_attempts(load(machine), configuration.load_settings())
    planned = load_study(study, settings)
    folder = f"{results_dir}/{machine}"
    states = run_states.list_states(planned.runs, folder)
    numbers = collections.Counter(state for _, state, _ in states)
    summary = ", ".join(f"{numbers[state]} {state}" for state in run_states.STATES if numbers[state])
    print(f"study {planned.name} on {machine}: {format_count(len(states), 'run')}: {summary}")
    if planned.loading:
        print(f"{run_states.loads_done(planned.loading, folder)} of {len(planned.loading)} loading measurements done")
    if is_on_launching_host(settings):
        print("; ".join(disturbance.describe_machine()))
    due = attempts.find_due_blocks(planned.runs, folder, settings)
    for line in (*attempts.describe_blocks(due), *attempts.describe_still_disturbed(planned.runs, folder, settings)):
        print(f"  {line}")
    for run, state, reason in states:
        if state in (*run_states.GOING_ON, "failed"):
            print(f"  {state}: {run.directory}{reason}")


@verb("findings", "What did a study find, and which runs failed?", page="docs/comparing-runs.md")
@study_options
def findings(study: str, machine: str, results_dir: str) -> None:
    """Print the findings of a finished study, what failed, and where its results are."""
    from study.compare import rank_answer
    from study.core import validation
    from study.experiment.undeclared_results import list_undeclared_results
    from study.records import tidy
    from study.report import terminal

    results = Path(results_dir, machine)
    folder = Path(paths.locate_study(results, study))
    runs_csv, file = folder / "runs.csv", folder / "findings.json"
    require_result_file(runs_csv, study, machine, results_dir)
    for line in terminal.format_answers(rank_answer.answer_workloads(tidy.read_runs(runs_csv))):
        print(line)
    is_stale = file in list_undeclared_results(folder)
    terminal.print_findings(study, file, is_stale)
    terminal.print_failures(runs_csv, validation.shorten_path(results))
    print(f"\nWhere to look, in {validation.shorten_path(folder)}/:")
    print("  report.html   one page: findings with their figures, failures, the machine, tables, every run")
    if file.exists() and not is_stale:
        print("  findings.md   the findings with the runs behind each")
    print("  tables/       every table as CSV, Markdown, LaTeX and HTML; figures/ as SVG and PDF")
    print("  runs.csv      one row per run; the column record names its folder")
    terminal.require_a_success(study, terminal.read_outcomes(runs_csv))


@verb("report", "Where is the report of a study?", page="docs/results.md")
@study_options
def report(study: str, machine: str, results_dir: str) -> None:
    """Print where the report of a finished study is."""
    page = Path(paths.locate_study(Path(results_dir, machine), study), "report.html")
    require_result_file(page, study, machine, results_dir)
    print(f"The report is {page}; open it in a browser.")


@verb(
    "compare", "How do several machines or code versions compare?", page="docs/machines/README.md",
    reads_workflow=False,
)  # fmt: skip
@click.argument("results", nargs=-1, required=True, metavar="[LABEL=]FOLDER...", shell_complete=complete_path)
@click.option("--output", type=PATH, required=True, metavar="DIR", help="folder for the tables")
def compare(results: tuple[str, ...], output: Path) -> None:
    """Make tables of one study's results on several machines, or by several versions of the code, side by side.

    FOLDER is results/<machine>/studies/<study> with runs.csv and loading.csv; a label replaces the machine's name. The
    machine is in each row. The table ``comparison`` has ratios to the first results, with intervals.
    """
    from study.report import machine_comparison

    for table in machine_comparison.make_tables([machine_comparison.parse_results(text) for text in results]):
        table.write_to(output)
        print(output / f"{table.name}.md")


@verb("export", "Pack a study's results into an archive.", page="docs/results.md")
@study_options
@click.option(
    "--output", type=PATH, metavar="PATH", help="a file; by default STUDY.tar.gz, in the folder of the studies"
)
def export(study: str, machine: str, results_dir: str, output: Path | None) -> None:
    """Pack a study's results into one archive: report, tables, figures, findings, and the records of its runs.

    The archive has each file's checksum (SHA256SUMS). Archives of the same results are the same, bit by bit. Starts no
    run.
    """
    archive = load_contrib("exports.archive")
    results = archive.Results(study, Path(results_dir, machine))
    require_result_file(results.folder / "runs.csv", study, machine, results_dir)
    output = output or results.folder.with_name(f"{study}.tar.gz")
    _refuse_folder(output)
    print(archive.export(results, output))


@verb("trace", "Where did a run's time go, in Perfetto?", page="docs/telemetry.md", reads_workflow=False)
@click.argument("run", type=PATH)
@click.option(
    "--output", type=PATH, metavar="PATH", help="a file, compressed if it ends with .gz; by default trace.json.gz"
)
def trace(run: Path, output: Path | None) -> None:
    """Write one run as a trace for Perfetto: phases, epochs, communication and power on one time axis.

    RUN is the directory of a run, such as results/local/runs/nt3/DATASET/POINT. Open the file in
    https://ui.perfetto.dev or chrome://tracing. The run may have failed, or go on. Starts no run.
    """
    from study.core.files import read_json
    from study.core.wording import format_count

    if not run.is_dir():
        raise StudyError(f"{run} is no folder; give the directory of a run, which has run.yaml")
    perfetto = load_contrib("exports.perfetto")
    output = output or Path(perfetto.FILE)
    _refuse_folder(output)
    written = perfetto.write_trace(run, output)
    print(f"{output}: {format_count(written.events, 'event')}, {output.stat().st_size / 1e6:.1f} MB")
    for part, reason in written.absent.items():
        print(f"without {part}: {reason}")
    record = run / "record.json"
    if record.exists() and (unproven := read_json(record).get("unproven")):
        print(f"unproven: {unproven}")


def _refuse_folder(output: Path) -> None:
    if output.is_dir():
        raise StudyError(f"--output: {output} is a folder; a file is expected")
