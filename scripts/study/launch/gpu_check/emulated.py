"""Part 6: study gpu_emulated, the learning-rate limit at the paper's size by emulated ranks."""

from study.launch.gpu_check import project_study
from study.launch.gpu_check.context import Context
from study.launch.gpu_check.project_study import Content
from study.launch.gpu_check.results import table_rows
from study.launch.gpu_check.small_study import SMALL, tell_runs

NAME = "gpu_emulated"
QUANTITY = "validation_accuracy"


def check(context: Context) -> None:
    """Run the study; then a row for each learning rate."""
    results = project_study.run(context, NAME, lambda content: change(context, content))
    tell_runs(context, results)
    for row in table_rows(results / "runs.csv"):
        if row["status"] == "ok":
            about = {"unit": "accuracy", "expected": f"after {row['epochs']} epochs of each rank; told, not judged"}
            rate, ranks = row["base_learning_rate"], row["emulated_ranks"]
            context.rows.judge(f"NT3 on {ranks} emulated ranks, learning rate {rate}", None, _accuracy(row), **about)


def change(context: Context, content: Content) -> None:
    """A small size on a CPU."""
    if context.kind == "cpu":
        content["datasets"]["nt3"] |= SMALL


def _accuracy(row: dict[str, str]) -> float | str:
    return float(row[QUANTITY]) if row.get(QUANTITY) else "none: it diverged"
