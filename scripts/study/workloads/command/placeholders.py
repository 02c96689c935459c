"""Placeholders in the words of a command: ``{batch_size_per_rank}``; ``{{name}}`` stays ``{name}``."""

import re
from collections.abc import Mapping
from typing import Any

RUN_FOLDER = "{run_folder}"  # before the names of files in the folder that the run gives to the program
WRITTEN = "{written}/"  # before patterns of fresh: only of files that earlier runs have written
CHECKPOINT = "checkpoint"  # where the program writes its checkpoint and finds it when it resumes
# Values that follow from a run's grid keys and from the process's place, and their meanings.
DERIVED: Mapping[str, str] = {
    "epochs_per_rank": "epochs that a rank trains: with `work: epochs`, its share under strong scaling",
    "batch_size_per_rank": "batch size of a rank, after batch scaling",
    "samples_per_rank": "samples of a rank in an epoch: its share if the ranks divide them",
    "steps_per_rank": "steps of a rank in the whole run",
    "train_samples": "samples of an epoch, from the benchmark's `workload`",
    "seed": "of the run; rank r should use seed + r. Each repeat has its own",
    "ranks": "number of ranks",
    "nodes": "number of nodes",
    "rank": "of this process, from 0; of the first one on its node or of the job, where it starts the ranks itself",
    "local_rank": "of this process on its node",
    "node_rank": "of its node",
    "ranks_on_node": "number of ranks on this node",
    "master_addr": "address at which the processes meet",
    "master_port": "free port there",
    "run_folder": "folder for the program's own files, which is kept with the run",
}
NAMED = re.compile(r"\{\{|\}\}|(?<!\$)\{([a-z_][a-z0-9_]*)\}")  # ${name} is a shell's


def list_placeholders(word: str) -> list[str]:
    """The names of the placeholders in a word."""
    return [name for name in NAMED.findall(word) if name]


def fill_placeholders(words: list[str], values: Mapping[str, Any]) -> list[str]:
    """Replace the placeholders in words by their values; a flag is ``true`` or ``false``."""
    return [NAMED.sub(lambda match: _format_match(match, values), word) for word in words]


def _format_match(match: re.Match[str], values: Mapping[str, Any]) -> str:
    """The text for a match of `NAMED`: the placeholder's value, or one brace of a doubled one."""
    if match[1] is None:
        return match[0][0]
    value = values[match[1]]
    return str(value).lower() if isinstance(value, bool) else str(value)
