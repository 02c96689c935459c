"""Figures of what formats of the converted files cost."""

from typing import Any

from study.core.files import AnyPath
from study.experiment.study import Study
from study.report.figures.description import Description
from study.report.figures.kinds.base import KINDS, Inputs, Kind
from study.report.tables.formats import NEEDS, measures_formats


class Formats(Kind):
    """What formats of the converted files cost."""

    uses_loading = True

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return NEEDS

    def uses(self, description: Description, run: Any) -> bool:
        """No run."""
        return False

    def is_there(self, description: Description, study: Study) -> bool:
        """Whether a study measures formats."""
        return measures_formats(study)

    def draw(self, description: Description, inputs: Inputs, svg: AnyPath, pdf: AnyPath) -> None:
        """Draw the figure and write both files."""
        from study.report.figures import formats_drawing

        data = formats_drawing.select(description, inputs.loading, inputs.study)
        formats_drawing.write(data, svg, pdf)


KINDS.add("formats", Formats())
