"""The library behind the study's scripts; it needs neither Snakemake nor, outside training, Horovod."""
