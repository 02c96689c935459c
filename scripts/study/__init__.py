"""The library behind the scripts; only `study.workflow` needs Snakemake, only `study.backends` Horovod."""

from study.core import isolation

isolation.require_isolation_of_scripts()  # here, since whatever a script imports next may already be a foreign package
