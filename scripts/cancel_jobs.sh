#!/bin/bash
# What Snakemake calls to cancel jobs: one program without arguments of its own, which it gives two seconds and then kills.
mkdir -p .cluster
setsid python "$(dirname "$0")/cluster.py" cancel "$@" >>.cluster/cancel.log 2>&1 </dev/null &
