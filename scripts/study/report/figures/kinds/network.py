"""Figures of the network: time per step by link rate, and bandwidth of allreduces by message size."""

from typing import Any

from study.experiment.study import Study
from study.report.figures.description import Description
from study.report.figures.kinds.base import KINDS, Kind
from study.report.tables.network import NEEDS, limits_links, sweeps


class Network(Kind):
    """What links of several rates cost."""

    drawing = "network_drawing"

    def needs(self, description: Description) -> str:
        """What a study must have for the figure, in words."""
        return f"runs with link_mbit_per_s, and {NEEDS}"

    def uses(self, description: Description, run: Any) -> bool:
        """The runs of tables ``network`` and ``allreduce``."""
        return limits_links(run) or sweeps(run)

    def is_there(self, description: Description, study: Study) -> bool:
        """Whether a study has runs of both tables."""
        return any(map(sweeps, study.runs)) and any(map(limits_links, study.runs))


KINDS.add("network", Network())
