"""Figures of points against the number of GPUs."""

from study.core.files import AnyPath
from study.experiment.study import Study
from study.report.figures.description import POINTS, Description, filters, has_runs
from study.report.figures.kinds.base import KINDS, Inputs


class Points:
    """Quantities of the runs that give timings, one line per series."""

    reads_timelines = False

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return f"runs{filters(description)}"

    def is_there(self, description: Description, study: Study) -> bool:
        """Whether a study has it."""
        return has_runs(description, study.runs)

    def draw(self, description: Description, inputs: Inputs, svg: AnyPath, pdf: AnyPath) -> None:
        """Draw the figure and write both files."""
        from study.report.figures import drawing, selection

        drawing.write(selection.select(description, inputs.runs, inputs.study), svg, pdf)


KINDS.add(POINTS, Points())
