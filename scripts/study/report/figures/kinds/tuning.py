"""Figures of arms against their baseline."""

from pathlib import Path
from typing import Any

from study.compare import first_verdicts
from study.core import paths
from study.report.figures.description import Description, draws, filters
from study.report.figures.kinds.base import KINDS, Inputs, Kind
from study.report.tables.kinds import TABLES


class Tuning(Kind):
    """A forest plot: the ratio of each arm to its baseline, with its interval."""

    drawing = "tuning_drawing"

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return f"{TABLES['tuning'].needs}{filters(description)}"

    def uses(self, description: Description, run: Any) -> bool:
        """The runs of table ``tuning``."""
        return TABLES["tuning"].uses(run) and draws(description, run)

    def data(self, module: Any, description: Description, inputs: Inputs) -> Any:
        """Of the runs that its table shows."""
        folder = Path(paths.study_folder(inputs.folder, inputs.study))
        runs, _ = first_verdicts.drop_later_runs(inputs.runs, first_verdicts.read(folder, "table_tuning"))
        return module.select(description, runs, inputs.study)


KINDS.add("tuning", Tuning())
