"""Figures of traced runs over time."""

from typing import Any

from study.core.files import AnyPath
from study.experiment.study import Study
from study.report.figures.description import Description, draws, filters
from study.report.figures.kinds.base import KINDS, Inputs


class TimelineFigure:
    """Traced runs over time."""

    uses_loading = False
    reads_further = False

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return f"traced runs{filters(description)}"

    def uses(self, description: Description, run: Any) -> bool:
        """The traced runs that pass the description's filters."""
        return draws(description, run, traced=True)

    def is_there(self, description: Description, study: Study) -> bool:
        """Whether a study has it."""
        return any(self.uses(description, run) for run in study.runs)

    def draw(self, description: Description, inputs: Inputs, svg: AnyPath, pdf: AnyPath) -> None:
        """Draw the figure and write both files."""
        from study.report.figures import timeline, timeline_drawing

        data = timeline.select(description, inputs.runs, inputs.study, inputs.folder)
        timeline_drawing.write(data, svg, pdf)


KINDS.add("timeline", TimelineFigure())
