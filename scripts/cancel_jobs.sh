#!/bin/bash
# What Snakemake calls to cancel jobs: one program without arguments of its own.
exec python "$(dirname "$0")/cluster.py" cancel "$@"
