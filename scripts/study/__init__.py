"""The library behind the study's scripts; it needs neither Snakemake nor, outside training, Horovod."""

from study.core import isolation

isolation.require_for_scripts()  # here, since whatever a script imports next may already be a foreign package
