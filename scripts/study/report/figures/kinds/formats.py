"""Figures of what formats of the converted files cost."""

from typing import Any

from study.experiment.study import Study
from study.report.figures.description import Description
from study.report.figures.kinds.base import KINDS, Inputs, Kind
from study.report.tables.kinds import TABLES


class Formats(Kind):
    """What formats of the converted files cost."""

    drawing = "formats_drawing"
    uses_loading = True

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return TABLES["formats"].needs

    def uses(self, description: Description, run: Any) -> bool:
        """No run."""
        return False

    def is_there(self, description: Description, study: Study) -> bool:
        """Whether a study measures formats."""
        return TABLES["formats"].is_there(study)

    def data(self, module: Any, description: Description, inputs: Inputs) -> Any:
        """Of the loads."""
        return module.select(description, inputs.loading, inputs.study)


KINDS.add("formats", Formats())
