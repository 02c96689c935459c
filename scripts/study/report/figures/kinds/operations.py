"""Figures of what a training step's time goes into."""

from typing import Any

from study.core.files import AnyPath
from study.report.figures.description import Description
from study.report.figures.kinds.base import KINDS, Inputs, Kind
from study.report.tables.operations import NEEDS, USES


class Operations(Kind):
    """A step's time by what it did, a bar for each point; of the runs of the table ``operations``."""

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return NEEDS

    def uses(self, description: Description, run: Any) -> bool:
        """The runs whose operations were profiled."""
        return USES(run)

    def draw(self, description: Description, inputs: Inputs, svg: AnyPath, pdf: AnyPath) -> None:
        """Draw the figure and write both files."""
        from study.report.figures import operations_drawing

        operations_drawing.write(operations_drawing.select(description, inputs.runs, inputs.study), svg, pdf)


KINDS.add("operations", Operations())
