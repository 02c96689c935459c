"""The key that tells the repeats of a point apart. It is the last part of a run's name."""

from study.experiment.parameter import Count, Parameter
from study.experiment.parameters.registry import declare

declare(
    Parameter(
        "repeat",
        Count(1, 1000),
        "Which repeat this is; a grid's key repeats says how many there are. Repeats are the blocks of an experiment.",
        default=1,
        is_repeat=True,
    )
)
