"""The random changes of images in a run's training."""

from study.data.samples import SampleSource
from study.experiment import learning_rate
from study.experiment.definition import RunDefinition


def augment_samples(samples: SampleSource, run: RunDefinition) -> SampleSource:
    """Add the run's random changes (``augmentation``) to its samples."""
    kind = run.parameters.get("augmentation", "light")
    return samples.change_augmentation(kind, learning_rate.find_collapse_epoch(run))
