"""Figures of energy against time."""

from study.report.figures.kinds.base import KINDS, Kind
from study.report.figures.kinds.points import Points


class EnergyTime(Points):
    """Each point's energy against its time, with the Pareto front; of the same runs as `Points`."""

    drawing = "energy_time_drawing"
    data = Kind.data


KINDS.add("energy_time", EnergyTime())
