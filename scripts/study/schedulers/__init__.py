"""Batch systems that have no Snakemake plugin which could be trusted: submit, status and cancel, a module each."""

from study.schedulers.cobalt import Cobalt
from study.schedulers.lsf import Lsf
from study.schedulers.pbs import Pbs

SCHEDULERS = {"lsf": Lsf, "cobalt": Cobalt, "pbs": Pbs}
