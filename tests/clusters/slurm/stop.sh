#!/usr/bin/env bash
# End what start.sh FOLDER started.
folder=$(realpath "$1")
for file in "$folder"/slurmd-*.pid "$folder"/slurmctld.pid "$folder"/munge.pid; do
  [ -f "$file" ] && kill "$(cat "$file")" 2>/dev/null
done
exit 0
