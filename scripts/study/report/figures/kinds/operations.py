"""Figures of what a training step's time goes into."""

from typing import Any

from study.report.figures.description import Description
from study.report.figures.kinds.base import KINDS, Kind
from study.report.tables.kinds import TABLES


class Operations(Kind):
    """A step's time by what it did, a bar for each point; of the runs of the table ``operations``."""

    drawing = "operations_drawing"

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return TABLES["operations"].needs

    def uses(self, description: Description, run: Any) -> bool:
        """The runs whose operations were profiled."""
        return TABLES["operations"].uses(run)


KINDS.add("operations", Operations())
