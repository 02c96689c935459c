"""The reference of the grid keys for the docs, from their declarations."""

from study.experiment import methods
from study.experiment.methods import NOT_STATED, PaperValue
from study.experiment.parameter import FromBenchmark, FromGrid, Parameter, Required
from study.experiment.parameters import PARAMETERS

HEAD = """# Grid keys

This page lists every key of a grid under `runs` in `config/studies/NAME.yaml`. Every key except the last five may be a
list. It is then an axis of the grid. A run is named by the keys that differ from their defaults.

The column "the papers" has the values with which a run counts as trained in a paper's way. The papers state few of
them. For the others, the default of the papers' software is assumed.

This page is written by `make reference` from `scripts/study/experiment/parameters/`.

| key | values | default | meaning | the papers |
|---|---|---|---|---|
"""
TAIL = """| `repeats` | integer, at least 1, at most 1000 | `1` | How often each point is run, each time with other \
seeds. Repeats are blocks: all points of a repeat run before the next repeat. | |
| `tuning` | `NAME: {KEY: VALUE, ...}` | | Arms: alternatives to the grid's points, see [Tuning](../tuning.md). | |
| `part` | text | | What the grid is for, such as a figure of a paper. The plan lists the runs of each part. | |
| `may_fail` | text | | Why these points are expected to fail; they run nevertheless. | |
| `walltime_minutes` | integer, at least 6 | from known times, else the machine's `time_limit_s` | Walltime of the \
batch job of each of these runs, five minutes more than the run may take, see \
[Walltime](../machines/README.md#running-on-a-cluster). If it changes, finished runs do not run again. | |

A default never changes once released. Runs that finished before a key existed count as runs with its default.
"""


def render_grid_keys() -> str:
    """Render the page docs/reference/grid-keys.md."""
    keys = [parameter for parameter in PARAMETERS.values() if not parameter.is_repeat]
    return HEAD + "".join(_format_row(parameter) for parameter in keys) + TAIL


def _format_row(parameter: Parameter) -> str:
    """A grid key's row of the page's table."""
    values = f"{parameter.kind}" + (f" ({parameter.unit})" if parameter.unit else "")
    papers = ", ".join(
        f"{paper}: {_format_paper_value(value)}" for paper, value in methods.find_paper_values(parameter.name).items()
    )
    return f"| `{parameter.name}` | {values} | {_format_default(parameter)} | {parameter.meaning} | {papers} |\n"


def _format_default(parameter: Parameter) -> str:
    """A grid key's default in the table."""
    if isinstance(parameter.default, FromBenchmark):
        return f"the benchmark's `{parameter.default.where}`"
    if isinstance(parameter.default, FromGrid):
        return parameter.default.where
    if isinstance(parameter.default, Required):
        return "the benchmark's name" if parameter.name == "dataset" else "required"
    return f"`{_format_value(parameter.default)}`"


def _format_paper_value(value: PaperValue) -> str:
    """A paper's value of a grid key in the table, with those of single benchmarks."""
    if not value.is_stated:
        return NOT_STATED
    exceptions = [f" ({name}: {_format_values(values)})" for name, values in value.benchmarks.items()]
    return "".join([_format_values(value.usual), *exceptions])


def _format_values(values: tuple[object, ...]) -> str:
    """Values in Markdown: `a` or `b`."""
    return " or ".join(f"`{_format_value(value)}`" for value in values)


def _format_value(value: object) -> str:
    """A value as YAML writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
