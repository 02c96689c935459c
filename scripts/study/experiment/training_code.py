"""The version of the code that trains a run: this project's, or a user's program."""

from collections.abc import Mapping, Sequence
from typing import Any

from study.core import code_version
from study.workloads import command
from study.workloads.command import content


def digest_training_code(benchmarks: Sequence[str], framework: str, spec: Mapping[str, Any]) -> str:
    """Digest of the code that can change a run's numbers.

    Args:
        benchmarks: that it trains; several in an ensemble of different networks.
        framework: that trains them.
        spec: the benchmark's YAML, or what a run's definition has of it.
    """
    if command.is_command(spec):
        return code_version.digest_command_code(content.compute_code_digest(spec))
    return code_version.digest_training_code(*benchmarks, framework=framework)
