"""Figures of what a training step's time goes into."""

from typing import Any

from study.core.files import AnyPath
from study.experiment.study import Study
from study.report.figures.description import Description
from study.report.figures.kinds.base import KINDS, Inputs
from study.report.tables.operations import NEEDS, USES


class Operations:
    """A step's time by what it did, a bar for each point; of the runs of the table ``operations``."""

    uses_loading = False
    reads_further = False

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return NEEDS

    def uses(self, description: Description, run: Any) -> bool:
        """The runs whose operations were profiled."""
        return USES(run)

    def is_there(self, description: Description, study: Study) -> bool:
        """Whether a study has it."""
        return any(map(USES, study.runs))

    def draw(self, description: Description, inputs: Inputs, svg: AnyPath, pdf: AnyPath) -> None:
        """Draw the figure and write both files."""
        from study.report.figures import operations_drawing

        operations_drawing.write(operations_drawing.select(description, inputs.runs, inputs.study), svg, pdf)


KINDS.add("operations", Operations())
