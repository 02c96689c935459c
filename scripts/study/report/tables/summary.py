"""What the tables of runs share: repeats put together, failures counted, published values put beside."""

import functools

import pandas as pd

from study import models
from study.core import configuration
from study.core.statistics import summarize
from study.report.tables.layout import ci95_name, text

# Columns in which two runs may differ and still be repeats of one point are not among these.
POINT = ["machine", "benchmark", "dataset", "scaling", "epochs", "gpus", "epochs_per_rank", "batch_size",
         "batch_size_per_rank", "batch_scaling", "learning_rate_scaling", "warmup_epochs", "loader",
         "staging", "input_pipeline", "sharding", "extra_loads", "checkpoint_epochs"]  # fmt: skip
WORKLOAD = ["train_samples", "features"]
TOLD = ["repeats_ok", "repeats_resumed", "repeats_failed", "failures", "may_fail", "power_source", "power_reason",
        "oversubscribed", "code_is_current",
        "records"]  # fmt: skip


def timed(runs):
    """The runs that give timings: tracing and profiling slow a run."""
    return runs[~(runs["trace"] | runs["profile"]).astype(bool)]


def points(runs, measures):
    """A row a point of the grid: mean and 95 % confidence interval of ``measures`` over its good repeats.

    ``repeats_ok`` and ``repeats_failed`` count the repeats, ``repeats_resumed`` those of the good ones whose times do
    not count because they were not trained in one piece, ``failures`` says what the failed ones were and
    ``may_fail`` whether that was expected, ``power_reason`` why there is no power. A point whose repeats all failed
    has a row with no numbers.
    """
    groups = runs.groupby(POINT, sort=False, dropna=False)
    rows = [_point(dict(zip(POINT, key, strict=True)), group, measures) for key, group in groups]
    table = pd.DataFrame(rows, columns=[*POINT, *WORKLOAD, *_measured(measures), *TOLD])
    return table.astype(dict.fromkeys(WORKLOAD, "Int64"))


def _measured(measures):
    return [column for measure in measures for column in (measure, ci95_name(measure))]


def _point(point, group, measures):
    ok = group[group["status"] == "ok"]
    failed = group[group["status"] != "ok"]
    for name in WORKLOAD:
        point[name] = ok[name].iloc[0] if len(ok) else None
    for measure in measures:
        sample = summarize(ok[measure])
        point[measure], point[ci95_name(measure)] = sample.mean, sample.ci95
    point["repeats_ok"], point["repeats_failed"] = len(ok), len(failed)
    point["repeats_resumed"] = int(ok["resumed_after_epoch"].notna().sum())
    point["failures"] = "; ".join(f"{n} x {kind}" for kind, n in failed["failure_kind"].value_counts().items()) or None
    point["may_fail"] = group["may_fail"].iloc[0]
    point["power_source"] = "; ".join(ok["power_source"].dropna().unique()) or None
    point["power_reason"] = _only_reason(ok)
    point["oversubscribed"] = bool(group["oversubscribed"].any())
    point["code_is_current"] = bool(group["code_is_current"].all())
    point["records"] = joined_records(group["record"])
    return point


def joined_records(records):
    """The records behind a row as one text, each once; the column ``records`` of every table."""
    return "; ".join(dict.fromkeys(records))


def _only_reason(ok):
    if len(ok) == 0:
        return "no repeat succeeded"
    reasons = ok["power_reason"].dropna().unique()
    return "; ".join(reasons) or None


VARIED = ["staging", "input_pipeline", "sharding", "checkpoint_epochs"]  # told of a row where they are not the default
OPTIONAL = (
    "batch_scaling",
    *VARIED,
    "extra_loads",
    "repeats_resumed",
    "repeats_failed",
    "failures",
    "may_fail",
    "oversubscribed",
)


def optional_columns(shown):
    """Of ``shown``, the columns that people need to see only where they say something."""
    prefixes = ("published_", "ratio_")
    return tuple(c for c in shown if c.startswith(prefixes) or c in OPTIONAL)


def beside_published(table, file, keys, measures, differences, label=""):
    """Add ``published_<measure>`` and ``ratio_<measure>`` (ours / published) where ``keys`` match a published row.

    file: CSV in config/published. differences: gives, for a row, how its workload differs from the
    published one, or None. Where it differs, the ratio stays empty and ``ratio_reason`` says why. label: put between
    ``published_`` or ``ratio_`` and the measure, where values of several machines stand side by side.
    """
    beside = published(file).set_index(keys)[measures].add_prefix(f"published_{label}")
    table = table.join(beside, on=keys)
    known = table[list(beside)].notna().any(axis=1)
    reasons = [differences(row) if match else None for match, (_, row) in zip(known, table.iterrows(), strict=True)]
    table["ratio_reason"] = pd.Series(reasons, index=table.index, dtype=object).where(known, "no published value")
    comparable = table["ratio_reason"].isna()
    real = ~table["dataset"].str.startswith("synthetic")
    for measure in measures:
        meant = comparable & real if measure == "accuracy" else comparable  # made-up data are learnt at their own pace
        table[f"ratio_{label}{measure}"] = (table[measure] / table[f"published_{label}{measure}"]).where(meant)
    return table


@functools.cache
def published(file):
    """One of the CSV files in config/published, as a data frame."""
    return pd.read_csv(configuration.CONFIG / "published" / file)


def workload_difference(row):
    """How a run's data or training differ from the paper's (icpp2019, Table 1 and section 6), or None."""
    spec = configuration.load_named("benchmarks", row["benchmark"])
    if not row["repeats_ok"]:
        return "no repeat succeeded"
    strong, batch = row["scaling"] == "strong", row["scaling"] == "batch"
    return difference(
        {
            "training samples": (row["train_samples"], spec["workload"]["train_samples"]),
            "features": (row["features"], spec["workload"]["features"]),
            "epochs": (row["epochs"], spec["epochs"].get(row["scaling"])),
            "learning rate scaling": (row["learning_rate_scaling"], "linear"),
            "warm-up epochs": (row["warmup_epochs"], 0),
            "staging": (row["staging"], "none"),
            "sharding": (row["sharding"], "none"),
            "epochs between checkpoints": (row["checkpoint_epochs"], 0),
            **({} if batch else {"batch size a rank": (row["batch_size_per_rank"], row["batch_size"])}),
            **({} if strong else {"batch size": (row["batch_size"], spec["batch_size"])}),
        }
    )


def file_difference(row):
    """How a loaded file's rows and columns differ from the published file's, or None."""
    spec = configuration.load_named("benchmarks", row["benchmark"])
    if "shape" not in spec:
        return "the rows of the published file are not known"
    rows, columns = models.get(row["benchmark"], spec).expected_shape(row["file"], spec["shape"])
    columns -= len(spec["files"][row["file"]].get("drop", []))
    return difference({"rows": (row["rows"], rows), "columns": (row["columns"], columns)})


def difference(wanted):
    """What differs, in words, of {what: (ours, theirs)}, or None."""
    different = [
        f"{what} {text(ours)} instead of {text(theirs)}" for what, (ours, theirs) in wanted.items() if ours != theirs
    ]
    return ", ".join(different) or None


def notes(table, what):
    """The remarks that belong under a table: what failed, what is old, what could not be compared and why."""
    found = []
    if "ratio_reason" in table and not table["ratio_reason"].isna().any() and len(table):
        found.append(f"no ratio to the published {what}: {_joined(table['ratio_reason'])}")
    if "power_reason" in table and table["power_reason"].notna().any():
        found.append(f"no power: {_joined(table['power_reason'].dropna())}")
    if "power_source" in table and table["power_source"].fillna("").str.contains("modelled").any():
        found.append("power and energy are modelled from CPU utilisation (power_model), not measured")
    if "repeats_failed" in table and table["repeats_failed"].sum():
        found.append(f"{table['repeats_failed'].sum()} failed repeats are not in the means")
    if "oversubscribed" in table and table["oversubscribed"].any():
        found.append("rows marked oversubscribed had fewer cores than ranks x cores a rank")
    if "code_is_current" in table and not table["code_is_current"].all():
        found.append("some of this was measured by another version of the code; see code_is_current")
    return found


def _joined(reasons):
    return "; ".join(dict.fromkeys(reasons))
