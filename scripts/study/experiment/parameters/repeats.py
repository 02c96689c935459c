"""The keys that tell equal runs apart: another control, another repeat. The repeat ends a run's name."""

from study.experiment.parameter import Count
from study.experiment.parameters.registry import declare

declare(
    "control",
    Count(0),
    "Changes nothing in training: an arm that only sets it compares the baseline with itself (A/A).",
    default=0,
)

declare(
    "repeat",
    Count(1, 1000),
    "Which repeat this is; a grid's key repeats says how many there are. Repeats are the blocks of an experiment.",
    default=1,
    is_repeat=True,
)
