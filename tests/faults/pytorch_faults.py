"""What happens to runs of PyTorch: the faults of other runs, after each of which the same must be true."""

import artefact_faults
import host_faults
import network_faults
import run_faults
from data_faults import NotHere
from registry import FAULTS, fault

from study import backends

DDP = {"framework": "pytorch", "strategy": "ddp"}
# Not those in loading: a rank that loads for long needs trace, which is Horovod's.
FUNCTIONS = (
    run_faults.rank_killed_in_training, run_faults.launcher_killed, run_faults.launch_killed, run_faults.interrupted,
    run_faults.rank_hangs_in_training, run_faults.time_limit, run_faults.python_error, run_faults.damaged_checkpoint,
    artefact_faults.diverging, host_faults.rank_on_a_host_killed, network_faults.link_down_in_training,
    network_faults.host_freezes,
)  # fmt: skip
# More than a process can address: PyTorch takes new steps from memory that it has, so a limit alone may never be met.
HUNGRY_RANK = """
import torch
from study.training import loop
end = loop.Loop.end_epoch
def end_epoch(self, epoch, *further):
    if self._ranks.rank == 1 and epoch == 1:
        torch.empty(1 << 50, dtype=torch.uint8)
    return end(self, epoch, *further)
loop.Loop.end_epoch = end_epoch
"""
QUICK = (run_faults.rank_hangs_in_training, artefact_faults.diverging, network_faults.link_down_in_training)


def _choose(place):
    """Let all runs of the place train with PyTorch."""
    if reason := backends.explain_missing("pytorch"):
        raise NotHere(reason)
    place.point = DDP


def _register(name, function):
    @fault(f"{name}, with PyTorch", "PyTorch", quick=function in QUICK)
    def on_pytorch(place):
        _choose(place)
        function(place)

    on_pytorch.__doc__ = function.__doc__


for _fault in [each for each in FAULTS.values() if each.function in FUNCTIONS]:
    _register(_fault.name, _fault.function)


@fault("a rank gets no more memory, with PyTorch", "PyTorch")
def out_of_memory(place):
    """A failed record of kind oom with the rank; no process is left."""
    _choose(place)
    place.copy.in_ranks(HUNGRY_RANK)
    place.injected()
    place.run(epochs=3)
    place.detected()
    assert run_faults.failed(place, "oom", "train")["rank"] == 1
