"""Part 5: study gpu_check, paired in interleaved blocks: mixed precision, torch.compile, batch size, loaders, power."""

import json
import math
from pathlib import Path

from study.launch.gpu_check import project_study
from study.launch.gpu_check.context import Context
from study.launch.gpu_check.drawing import RATIOS
from study.launch.gpu_check.limit_checks import power_limit
from study.launch.gpu_check.project_study import Content
from study.launch.gpu_check.results import NotPossible, table_rows, write_csv

NAME = "gpu_check"
BLOCKS = 3  # at the default of --minutes; the fewest for an interval
SMALL = {"train_samples": 100, "test_samples": 20, "features": 600}  # on a CPU
COLUMNS = ("arm", "blocks", "ratio", "low", "high")
POWER, COMPILED = "power_limit", "compiled"


def check(context: Context) -> None:
    """Run the study; then a row for each arm, each finding and each run that failed."""
    results = project_study.run(context, NAME, lambda content: change(context, content))
    tell_runs(context, results)
    _tell_arms(context, results)
    _tell_findings(context, results)


def change(context: Context, content: Content) -> None:
    """Make the study fit this host."""
    (grid,) = content["runs"]
    grid["repeats"] = max(BLOCKS, round(BLOCKS * context.share))
    if not project_study.has_compiler():
        del grid["tuning"][COMPILED]
        context.rows.not_possible(COMPILED, "torch.compile needs a C++ compiler, such as g++")
    if context.kind == "cpu":
        content["datasets"]["nt3"] |= SMALL
        return
    try:
        grid["tuning"][POWER] = {"gpu_power_limit_w": power_limit(context, context.first())}
        _settable(context, grid["tuning"][POWER]["gpu_power_limit_w"])
    except NotPossible as why:
        grid["tuning"].pop(POWER, None)
        context.rows.not_possible(POWER, why)


def _settable(context: Context, watts: float) -> None:
    """Raise `NotPossible` where this user may not set a power limit: the plan would refuse the whole study."""
    from study.core.errors import StudyError

    try:
        with context.limited(context.first(), {"gpu_power_limit_w": watts}):
            pass
    except StudyError as refused:
        raise NotPossible(refused) from None


def tell_runs(context: Context, results: Path) -> None:
    """A row on whether all runs ended well, with the first reason."""
    runs = table_rows(results / "runs.csv")
    bad = [row for row in runs if row["status"] != "ok"]
    why = f"{len(bad)} failed; {bad[0]['record']}: {bad[0]['failure_message']}" if bad else None
    if runs:
        context.rows.judge("runs of the study that ended well", why, len(runs) - len(bad), unit=f"of {len(runs)} runs")


def _tell_arms(context: Context, results: Path) -> None:
    """The ratio of each arm to the baseline, with its 95 % interval."""
    drawn = []
    for row in table_rows(results / "tables" / "tuning.csv"):
        about = {
            "unit": "x",
            "expected": f"steady throughput, of the baseline, {row['blocks']} blocks; told, not judged",
        }
        check_name = f"{row['arm']}: ratio of throughput"
        ratio, low, high = (_number(row[f"throughput_ratio{end}"]) for end in ("", "_low", "_high"))
        if not all(map(math.isfinite, (ratio, low, high))):
            context.rows.judge(check_name, f"no interval: {row.get('failures') or 'too few blocks'}", **about)
            continue
        context.rows.judge(check_name, None, f"{ratio:.4g} (95 % {low:.4g} to {high:.4g})", **about)
        drawn.append({"arm": row["arm"], "blocks": row["blocks"], "ratio": ratio, "low": low, "high": high})
    if drawn:
        write_csv(context.output / RATIOS, COLUMNS, drawn)


def _number(text: str) -> float:
    return float(text) if text else math.nan


def _tell_findings(context: Context, results: Path) -> None:
    path = results / "findings.json"
    for found in json.loads(path.read_text(encoding="utf-8"))["findings"] if path.is_file() else []:
        context.rows.judge(found["title"], None, found["verdict"], expected="told, not judged")
