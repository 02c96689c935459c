"""Whether the models of own benchmarks keep what the keys of a run promise, seen without training, before any run.

Each framework has a module ``model_check`` of its own. Its function ``check`` builds the model as two ranks build it,
tries it on a few synthetic samples, and raises `StudyError` for what it does not keep. No other rank is needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from study import workloads
from study.backends.few_samples import few_samples
from study.core.errors import StudyError
from study.experiment.definition import RunDefinition


def refusal(run: RunDefinition, shape: Mapping[str, int]) -> str | None:
    """Why ``run`` cannot be trained as it promises; None if nothing speaks against it.

    shape: of the dataset, see `study.experiment.study.Dataset`; its numbers of samples do not matter.

    Raises:
        Exception: of the benchmark's own code. It is the user's, so it may be anything.
    """
    of_framework = importlib.import_module(f"study.backends.{run.framework}.model_check")
    benchmark = workloads.with_model(run.benchmark["name"], run.benchmark, run.framework)
    samples = few_samples(benchmark, run, shape)
    try:
        of_framework.check(benchmark, run, samples)
    except StudyError as error:
        return str(error)
    return None
