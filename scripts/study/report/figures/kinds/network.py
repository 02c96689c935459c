"""Figures of the network: time per step by link rate, and bandwidth of allreduces by message size."""

from typing import Any

from study.experiment.study import Study
from study.report.figures.description import Description
from study.report.figures.kinds.base import KINDS, Kind
from study.report.tables.kinds import TABLES

OF_TABLES = ("network", "allreduce")


class Network(Kind):
    """What links of several rates cost."""

    drawing = "network_drawing"

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return ", and ".join(TABLES[name].needs for name in OF_TABLES)

    def uses(self, description: Description, run: Any) -> bool:
        """The runs of tables ``network`` and ``allreduce``."""
        return any(TABLES[name].uses(run) for name in OF_TABLES)

    def is_there(self, description: Description, study: Study) -> bool:
        """Whether a study has runs of both tables."""
        return all(TABLES[name].is_there(study) for name in OF_TABLES)


KINDS.add("network", Network())
