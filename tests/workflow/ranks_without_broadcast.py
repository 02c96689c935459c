"""A training run whose broadcast does nothing: `study.training.rank` must notice."""

import sys
from pathlib import Path

import yaml

from study.core.errors import exit_with_message
from study.instruments.phases import now
from study.training.communicator import Horovod
from study.training.rank import run_rank


class WithoutBroadcast(Horovod):
    """Horovod, but the ranks keep the weights they began with."""

    def broadcast(self, variables):
        pass


folder = Path(sys.argv[1])
exit_with_message(lambda: run_rank(yaml.safe_load((folder / "run.yaml").read_text()), folder, now(), WithoutBroadcast))
