"""The steps from run records to tables, figures, findings and the report of a study.

`study.core.code_version.digest_step_code` takes a step's own function and what it imports, and all of this module that
is no step: what a single step needs is imported in its function.
"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from study.commands.options import PATH, WHOLE, OneOf, load_contrib, machine_option, planned_study_option, step
from study.core import paths
from study.core.errors import StudyError

if TYPE_CHECKING:
    from study.experiment.study import Study

LEAST_S = 60.0  # between two early reports: each takes seconds, in which no run starts


@step("update_records")
@planned_study_option
@click.option("--output", type=PATH, required=True, help="a file, in a study's folder logs, named by the code")
def update_records(study: "Study", output: Path) -> None:
    """Make the records of a study's finished runs again where they are missing or of older code, in one process."""
    from study.core.files import write_text
    from study.core.wording import format_count
    from study.records import renewal

    results = paths.find_machine_folder(output.parent)
    records = [paths.locate_record(results, run.directory) for run in study.runs]
    number = renewal.update(filter(renewal.has_ended, records))
    if number:
        print(f"{format_count(number, 'record')} made again by this version of the code; nothing was trained")
    for earlier in output.parent.glob(f"{output.stem.rpartition('_')[0]}_*"):
        earlier.unlink()  # so that a return to an older version is noticed
    write_text(output, f"{number}\n")


@step("collect_records")
@planned_study_option
@machine_option
@click.option("--data", required=True, help="the folder of the datasets, as the runs were planned with it")
@click.option("--runs", "runs_file", required=True, help="the CSV file to write, a row per run")
@click.option("--loading", "loading_file", required=True, help="the CSV file to write, a row per load")
@click.option("--attempts", "attempts_file", required=True, help="the CSV file to write, a row per attempt of a repeat")
def collect_records(
    study: "Study", machine: dict[str, Any], data: str, runs_file: str, loading_file: str, attempts_file: str
) -> None:
    """Collect a study's run records and loading measurements into runs.csv, loading.csv and attempts.csv.

    Failed and doubtful runs are listed on standard error. A run whose configuration changed after the plan is refused.
    """
    begun_ns = time.time_ns()
    from study.compare import failed_runs
    from study.core import code_version
    from study.core.files import AnyPath, read_seal_at_end, write_with_checksum
    from study.experiment import expansion, inputs
    from study.records import attempts, checks, failures, own_keys
    from study.records.tidy import current_code, loading_frame, runs_frame

    results = paths.find_machine_folder(runs_file)
    fingerprints, changed = list[str](), list[Any]()

    def note_fingerprint(run: Any, record: Any) -> None:
        fingerprint = record["provenance"]["fingerprint"]
        fingerprints.append(str(fingerprint))
        if fingerprint not in (None, inputs.define_run(run, machine, data).fingerprint):
            changed.append(run)

    measurements = [paths.locate_loading(results, measurement.directory) for measurement in study.loading]
    code, peak = current_code(study.runs, machine), machine.get("peak_flop_per_s_per_rank")
    limits = machine.get("disturbance")
    attempts.keep_least_disturbed(study.runs, results)
    runs = runs_frame(study.runs, code, results, peak, limits=limits, reads_targets=True, inspect=note_fingerprint)
    # A packed job reads the configuration when it starts, perhaps hours after the plan.
    if changed and not expansion.has_planned_runs(fingerprints):
        raise StudyError(
            f"{paths.locate_run(results, changed[0].directory)}: the configuration changed after this run was planned, "
            "and it trained with another one; delete this folder and give the same command again"
        )
    loading = loading_frame(measurements, code_version.digest_loading_code(), results)
    read = [*(paths.locate_record(results, run.directory) for run in study.runs), *measurements]
    # Both tables have just read and checked them.
    seals: dict[AnyPath, str | None] = {each: read_seal_at_end(each) for each in read}
    repeated = attempts.tabulate_attempts(study.runs, results, limits)
    for frame, file in (
        (own_keys.empty_lacking_keys(runs), runs_file),
        (loading, loading_file),
        (repeated, attempts_file),
    ):
        with write_with_checksum(file, begun_ns, seals) as aside:
            frame.to_csv(aside, index=False)

    columns = ["record", "status", "failure_kind", "failure_message", "checks", "unproven"]
    for row in runs[columns].to_dict("records") if len(runs) else ():
        folder = (results / row["record"]).parent
        if row["status"] != "ok":
            cause = failures.cause(row["failure_kind"], row["failure_message"])
            print(f"failed: {cause}. See {folder}/train.log; to run it again, delete {folder}", file=sys.stderr)
        elif failed_runs.is_unproven(row):
            print(f"warning: {row['record']}: unproven: {row['unproven']}", file=sys.stderr)
        elif f" {checks.FAILED} " in row["checks"]:
            print(f"warning: {row['record']}: {row['checks'].split(f' {checks.PASSED}')[0]}", file=sys.stderr)
    for frame, noun, rule in ((runs, "runs", "train"), (loading, "loads", "measure_loading")):
        number = int((~frame["code_is_current"].astype(bool)).sum()) if len(frame) else 0
        if number:
            print(
                f"note: {number} of {len(frame)} {noun} were made by another version of their code "
                f"(column code_is_current); the same command with --forcerun {rule} makes them again",
                file=sys.stderr,
            )


@step("make_table")
@click.option("--table", "table_name", type=OneOf("study.report.tables", "TABLES"), required=True)
@planned_study_option
@click.option("--csv", required=True, help="a file to write, in a study's folder tables")
@click.option("--markdown", required=True)
@click.option("--latex", required=True)
@click.option("--html", required=True)
def make_table(table_name: str, study: "Study", csv: str, markdown: str, latex: str, html: str) -> None:
    """Make one table of a study, as CSV, Markdown, LaTeX and HTML, from the records of the runs that it uses."""
    import dataclasses

    from study.compare import first_verdicts
    from study.core.wording import format_count
    from study.records.table_inputs import gather
    from study.report.tables import TABLES
    from study.report.tables.kinds import with_own_keys

    kind, results = TABLES[table_name], paths.find_machine_folder(Path(csv).parent)
    runs, loading = gather(study, results, kind.uses, kind.uses_loading, kind.reads_further, kind.reads_targets)
    folder, judge = Path(paths.locate_study(results, study.name)), f"table_{table_name}"
    earlier = first_verdicts.read(folder, judge) if kind.verdicts else {}
    runs, late = first_verdicts.drop_later_runs(runs, earlier)
    table = with_own_keys(kind.make(runs, loading), runs)
    notes = [f"{format_count(late, 'run')} added after a verdict was seen: left out"] if late else []
    table = dataclasses.replace(table, caption=f"study {study.name}: {table.caption}", notes=[*table.notes, *notes])
    if kind.verdicts:
        verdicts = first_verdicts.add_verdicts(runs, table.list_judged_records(kind.verdicts), earlier)
        if verdicts != earlier:
            first_verdicts.write(folder, judge, verdicts)
    table.write(csv, markdown, latex, html)


@step("make_figure")
@click.option("--figure", required=True, help="a figure of config/figures.yaml or config/papers")
@planned_study_option
@click.option("--svg", required=True, help="a file to write, in a study's folder figures")
@click.option("--pdf", required=True)
def make_figure(figure: str, study: "Study", svg: str, pdf: str) -> None:
    """Draw one figure of a study, as SVG and PDF, from the records of the runs that it uses."""
    from functools import partial

    from study.records.table_inputs import gather
    from study.report.figures.description import has_targets, load_description
    from study.report.figures.kinds import KINDS, Inputs

    description, results = load_description(figure), paths.find_machine_folder(Path(svg).parent)
    kind = KINDS[description.kind]
    uses = partial(kind.uses, description)
    runs, _ = gather(study, results, uses, False, kind.reads_further, has_targets(description))
    kind.draw(description, Inputs(runs, study.name, results), svg, pdf)


@step("make_findings")
@planned_study_option
@click.option("--json", "json_file", required=True, help="findings.json, in a study's folder")
@click.option("--markdown", required=True, help="the same for reading")
def make_findings(study: "Study", json_file: str, markdown: str) -> None:
    """State the findings of a study, as JSON and Markdown, from the records of the runs that they compare."""
    from study.compare import first_verdicts
    from study.core import validation
    from study.core.files import write_json, write_text
    from study.records.table_inputs import gather
    from study.report import sources
    from study.report.findings import outcome

    results, folder = paths.find_machine_folder(json_file), Path(json_file).parent
    used = {run.directory for run in sources.select_finding_sources(study).runs}
    runs, _ = gather(study, results, lambda run: run.directory in used, uses_loading=False)
    machine, earlier = paths.find_machine_name(results), first_verdicts.read(folder, "findings")
    outcomes = outcome.judge_findings(study, runs, earlier)
    content = outcome.to_json(study, machine, outcomes)
    validation.validate(content, "study_findings", json_file)
    write_text(markdown, outcome.to_markdown(study, machine, outcomes))
    first_verdicts.write(folder, "findings", outcome.add_first_verdicts(outcomes, runs, earlier))
    write_json(json_file, content)


@step("show_early")
@planned_study_option
@machine_option
@click.option("--block", type=WHOLE, required=True, help="the last block whose runs have all ended")
@click.option("--report", "page_file", type=PATH, required=True, help="the page, in the study's results folder")
@click.option("--output", type=PATH, required=True, help="a file that tells that it was done")
@click.option("--shows", type=click.Choice(["report", "table"]), default="report", help="table: of scaling, no report")
def show_early(
    study: "Study", machine: dict[str, Any], block: int, page_file: Path, output: Path, shows: str
) -> None:  # fmt: skip
    """While a study runs: print the findings of its complete blocks, and write the report of what has ended."""
    from study.core.files import write_text, write_with_checksum

    if shows == "report" and page_file.exists() and 0 <= time.time() - page_file.stat().st_mtime < LEAST_S:
        write_text(output, "")
        return
    # With pandas, which a skipped report does not need.
    import dataclasses

    from study.records.table_inputs import gather
    from study.report import terminal
    from study.report.findings import outcome
    from study.report.page.page import SoFar, make_page

    results = paths.find_machine_folder(page_file)
    measured = tuple(each for each in study.loading if Path(paths.locate_loading(results, each.directory)).exists())
    ended = dataclasses.replace(study, loading=measured)
    runs, loading = gather(ended, results, lambda run: run.repeat <= block, uses_loading=True, reads_targets=True)
    if shows == "table":
        print(f"\nAfter block {block} of {max(run.repeat for run in study.runs)}:", file=sys.stderr)
        print(*terminal.format_scaling(runs), "", sep="\n", file=sys.stderr)
        write_text(output, "")
        return
    outcomes = outcome.judge_findings(study, runs)
    answered = [dataclasses.asdict(each) for each in outcomes if each.verdict != outcome.NOT_ENOUGH]
    if answered:
        blocks = max(run.repeat for run in study.runs)
        print(f"\nAfter {block} of {blocks} blocks, which may change:", file=sys.stderr)
        print(*terminal.format_findings(answered), "", sep="\n", file=sys.stderr)
    text = make_page(study, machine, page_file.parent, SoFar(runs, loading, outcomes))
    with write_with_checksum(page_file) as aside:
        aside.write_text(text, encoding="utf-8")
    print(f"The report of what has ended: {page_file}", file=sys.stderr)
    write_text(output, "")


@step("make_report")
@planned_study_option
@machine_option
@click.option("--output", required=True, help="the page, in the study's results folder")
def make_report(study: "Study", machine: dict[str, Any], output: str) -> None:
    """Make a study's report, one HTML page that needs no network, from what is in the study's results folder."""
    from study.core.files import write_with_checksum
    from study.report.page.page import make_page

    text = make_page(study, machine, Path(output).parent)
    with write_with_checksum(output) as aside:
        aside.write_text(text, encoding="utf-8")


@step("make_export")
@click.option("--export", type=OneOf("study.contrib.exports", "EXPORTS"), required=True)
@planned_study_option
@click.option("--output", type=PATH, required=True, help="a folder to write, in a study's folder exports")
def make_export(export: str, study: "Study", output: Path) -> None:
    """Write an export that a study declares into a folder of its own, for another tool. Starts no run."""
    results = paths.find_machine_folder(output.parent)
    for line in load_contrib("exports.study_exports").write_export(export, study, results, output):
        print(line)
