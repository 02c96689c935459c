"""Which random changes a run makes in training."""

from study.data.samples import SampleSource
from study.experiment import learning_rate
from study.experiment.definition import RunDefinition


def augmented(samples: SampleSource, run: RunDefinition) -> SampleSource:
    """``samples`` with the random changes of the run."""
    kind = run.parameters.get("augmentation", "light")
    return samples.augmented(kind, learning_rate.first_collapsed_epoch(run))
