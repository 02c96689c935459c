"""A training run whose broadcast does nothing: `study.training.rank` must notice."""

import sys
from pathlib import Path

from study.backends.tensorflow.horovod import Horovod
from study.core.errors import exit_with_message
from study.experiment.definition import RunDefinition
from study.instruments.phases import now
from study.training.rank import run_rank


class WithoutBroadcast(Horovod):
    """Horovod, but the ranks keep the weights they began with."""

    def broadcast_variables(self, variables):
        pass


folder = Path(sys.argv[1])
exit_with_message(lambda: run_rank(RunDefinition.read(folder / "run.yaml"), folder, now(), WithoutBroadcast))
