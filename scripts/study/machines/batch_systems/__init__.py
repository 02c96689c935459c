"""Batch systems that have no Snakemake plugin which could be trusted: submit, status and cancel, a module each."""

from study.machines.batch_systems.cobalt import Cobalt
from study.machines.batch_systems.lsf import Lsf
from study.machines.batch_systems.pbs import Pbs

SCHEDULERS = {"lsf": Lsf, "cobalt": Cobalt, "pbs": Pbs}
