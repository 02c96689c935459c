"""Collect a study's run records and loading measurements into tidy tables: runs.csv, loading.csv and attempts.csv."""

import argparse
import sys
import time
from functools import partial

from study.core import code_version, paths
from study.core.errors import StudyError, exit_with_message
from study.core.files import seal_at_end, written_with_checksum
from study.experiment import inputs
from study.experiment.expansion import load_planned
from study.machines import machine
from study.records import attempts, checks, failures, own_keys
from study.records.tidy import current_code, loading_frame, runs_frame

TOLD = ["record", "status", "failure_kind", "failure_message", "checks"]  # columns of what is printed


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True)
    parser.add_argument("--machine", required=True, help="the machine of the runs, for its peak")
    parser.add_argument("--data", required=True, help="the folder of the datasets, as the runs were planned with it")
    parser.add_argument("--runs", required=True, help="the CSV file to write, a row per run")
    parser.add_argument("--loading", required=True, help="the CSV file to write, a row per load")
    parser.add_argument("--attempts", required=True, help="the CSV file to write, a row per attempt of a repeated run")
    arguments, begun_ns = parser.parse_args(), time.time_ns()
    study, results = load_planned(arguments.study), paths.machine_folder(arguments.runs)
    measurements = [paths.loading(results, measurement.directory) for measurement in study.loading]
    on = machine.load(arguments.machine)
    code, peak = current_code(study.runs, on), on.get("peak_flop_per_s_per_rank")
    require_planned = partial(_require_planned, on, arguments.data, results)
    runs = runs_frame(study.runs, code, results, peak, limits=on.get("disturbance"), reads_targets=True,
                      inspect=require_planned)  # fmt: skip
    loading = loading_frame(measurements, code_version.loading_code(), results)
    read = [*(paths.record(results, run.directory) for run in study.runs), *measurements]
    seals = {each: seal_at_end(each) for each in read}  # both tables have just read and checked them
    several = attempts.frame(study.runs, results, on.get("disturbance"))
    written = own_keys.emptied(runs)
    for frame, path in ((written, arguments.runs), (loading, arguments.loading), (several, arguments.attempts)):
        with written_with_checksum(path, begun_ns, seals) as aside:
            frame.to_csv(aside, index=False)
    _report(runs, loading, results)


def _require_planned(on, data, results, run, record):
    """Refuse a run of another configuration: a batch job reads it when it starts, perhaps hours after the plan."""
    found = record["provenance"]["fingerprint"]
    if found not in (None, inputs.define(run, on, data).fingerprint):
        raise StudyError(
            f"{paths.run_folder(results, run.directory)}: the configuration changed after this run was planned, and it "
            "trained with another one; delete this folder and give the same command again"
        )


def _report(runs, loading, folder):
    for run in runs[TOLD].to_dict("records") if len(runs) else ():
        where = (folder / run["record"]).parent
        if run["status"] != "ok":
            why = failures.cause(run["failure_kind"], run["failure_message"])
            print(f"failed: {why}. See {where}/train.log; to run it again, delete {where}", file=sys.stderr)
        elif f" {checks.FAILED} " in run["checks"]:
            print(f"warning: {run['record']}: {run['checks'].split(f' {checks.PASSED}')[0]}", file=sys.stderr)
    for frame, what, rule in ((runs, "runs", "train"), (loading, "loads", "measure_loading")):
        old = int((~frame["code_is_current"].astype(bool)).sum()) if len(frame) else 0
        if old:
            print(
                f"note: {old} of {len(frame)} {what} were made by another version of their code "
                f"(column code_is_current); the same command with --forcerun {rule} makes them again",
                file=sys.stderr,
            )


if __name__ == "__main__":
    exit_with_message(main)
