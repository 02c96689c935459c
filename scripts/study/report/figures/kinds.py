"""The registry of kinds of figures: what each draws, from which runs, and what a study must have for it.

None imports Matplotlib before it draws, since every start of Snakemake is here.
"""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from study.compare import first_verdicts
from study.core import paths
from study.core.files import AnyPath
from study.core.registry import Registry
from study.experiment.study import Study
from study.report.figures.description import POINTS, Description, describe_filters, is_drawn
from study.report.tables.kinds import TABLES


@dataclass(frozen=True)
class Inputs:
    """The input of a figure.

    Args:
        runs: the tidy table of the runs that the figure uses.
        study: the study's name.
        folder: the machine's results folder, to which the column ``record`` is relative.
    """

    runs: pd.DataFrame
    study: str
    folder: Path


class Kind:
    """A kind of figure: by default, quantities of the runs that give timings, drawn by ``drawing``."""

    reads_further = False  # True if it also shows the study's ``further_results``, runs of other machines

    def __init__(self, drawing: str) -> None:
        """drawing: the module in `study.report.figures` that draws it, imported for that only: it loads Matplotlib."""
        self._drawing = drawing

    def needs(self, description: Description) -> str:
        """Say in words what a study must have for the figure."""
        return f"runs{describe_filters(description)}"

    def uses(self, description: Description, run: Any) -> bool:
        """True if the figure is made from this run, planned or a row of ``runs.csv``; it gets no others."""
        return is_drawn(description, run)

    def is_there(self, description: Description, study: Study) -> bool:
        """True if a study has what the figure needs: by default, a run that it uses."""
        return any(self.uses(description, run) for run in study.runs)

    def select(self, module: Any, description: Description, inputs: Inputs) -> Any:
        """Select the data that are drawn: by default by the ``select`` of the ``module`` that draws them."""
        return module.select(description, inputs.runs, inputs.study)

    def draw(self, description: Description, inputs: Inputs, svg: AnyPath, pdf: AnyPath) -> None:
        """Draw the figure and write both files, whole or not at all."""
        from study.report.figures.drawing import write_figure

        module = importlib.import_module(f"study.report.figures.{self._drawing}")
        write_figure(module.draw, self.select(module, description, inputs), svg, pdf)


class FromTables(Kind):
    """The rows of tables, drawn; the runs are those of these tables, filtered as the description says."""

    def __init__(self, drawing: str, *tables: str) -> None:
        """tables: their names."""
        super().__init__(drawing)
        self._tables = tables

    def needs(self, description: Description) -> str:
        """Say in words what a study must have for the figure."""
        return f"{', and '.join(TABLES[name].needs for name in self._tables)}{describe_filters(description)}"

    def uses(self, description: Description, run: Any) -> bool:
        """True if one of the tables is made from this run, and it passes the filters."""
        passes = all(run[column] in values for column, values in description.runs.items())
        return passes and any(TABLES[name].uses(run) for name in self._tables)

    def is_there(self, description: Description, study: Study) -> bool:
        """True if a study has the runs or loads of all its tables."""
        return all(TABLES[name].is_there(study) for name in self._tables)


class Tuning(FromTables):
    """A forest plot: the ratio of each arm to its baseline, with its interval."""

    def select(self, module: Any, description: Description, inputs: Inputs) -> Any:
        """Select the data from the runs that its table shows: those up to the first verdicts."""
        folder = Path(paths.locate_study(inputs.folder, inputs.study))
        runs, _ = first_verdicts.drop_later_runs(inputs.runs, first_verdicts.read(folder, "table_tuning"))
        return module.select(description, runs, inputs.study)


class OverTime(Kind):
    """A quantity and phases of runs over time; several machines' runs that give timings stand on one time axis.

    Of sc18, Figures 3, 4, 5 and 7; of icpp2019, the timelines; of pittman2018, Figures 2 and 3.
    """

    def __init__(self, quantity: str, traced: bool = False) -> None:
        """quantity: one of `study.report.figures.timeline.QUANTITIES`. traced: of traced runs, with communication."""
        super().__init__("timeline_drawing")
        self._quantity, self._traced = quantity, traced
        self.reads_further = not traced

    def needs(self, description: Description) -> str:
        """Say in words what a study must have for the figure."""
        return f"{'traced ' * self._traced}runs{describe_filters(description)}"

    def uses(self, description: Description, run: Any) -> bool:
        """True if a run is traced, or gives timings, and passes the description's filters."""
        return is_drawn(description, run, traced=self._traced)

    def select(self, module: Any, description: Description, inputs: Inputs) -> Any:
        """Select the data from the runs and the files in their directories."""
        from study.report.figures.timeline import select_timeline

        return select_timeline(description, inputs.runs, inputs.study, inputs.folder, self._traced, self._quantity)


KINDS: Registry[Kind] = Registry("kind of figure")
KINDS.add(POINTS, Kind("drawing"))
KINDS.add("energy_time", Kind("energy_time_drawing"))
KINDS.add("network", FromTables("network_drawing", "network", "allreduce"))
KINDS.add("tuning", Tuning("tuning_drawing", "tuning"))
KINDS.add("timeline", OverTime("power", traced=True))
for quantity in ("power", "queue_fill", "cores_used"):
    KINDS.add(quantity, OverTime(quantity))
