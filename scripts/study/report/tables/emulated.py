"""Our own table: accuracy at rank counts that one rank emulates."""

import pandas as pd

import study.report.tables.kinds as kinds
from study.report.tables.layout import Table
from study.report.tables.summary import IDENTITY, notes, optional_columns, points

QUALITY = ["learning_rate_used", "loss", "accuracy", "test_accuracy", "test_growth_sign_accuracy", "test_loss",
           "gradient_noise_scale"]  # fmt: skip


@kinds.table(
    "emulated",
    title="Accuracy of emulated ranks",
    look_for="Whether accuracy falls with the learning rate or with the epochs of a rank: compare rows of the same "
    "epochs with another learning rate, and rows of the same rate with other epochs.",
    needs="runs with emulated_ranks",
    uses=kinds.runs(observed="emulated_ranks"),
)
def emulated(runs: pd.DataFrame, loading: pd.DataFrame) -> Table:
    """One row per point: the learning rate that was used, and the quality reached."""
    table = points(runs, QUALITY)
    order = ["benchmark", "features", "dataset", "learning_rate_scaling", "epochs_per_rank", "emulated_ranks",
             "learning_rate_used"]  # fmt: skip
    table = table.sort_values(order, ignore_index=True)
    shown = ["benchmark", "features", "scaling", "emulated_ranks", "epochs_per_rank", "batch_size_per_rank",
             "learning_rate_scaling", *QUALITY, "repeats_ok", "repeats_failed", "failures"]  # fmt: skip
    caption = (
        "One rank trains as emulated_ranks ranks do: with the same samples, averaged gradients and learning rate. "
        "Loss and accuracy are of the last epoch's training, and on the test set."
    )
    optional = (*optional_columns(shown), *(name for name in QUALITY if "accuracy" in name), "gradient_noise_scale")
    return Table("emulated", caption, table, shown, optional, notes(table, "values"), IDENTITY)
