"""The interface of a batch system: build exact command lines and parse exact answers. It executes nothing."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from study.core.files import AnyPath
from study.core.registry import Registry


class State(Enum):
    """State of a job according to the scheduler.

    ``HELD``: it waits until a person does something. ``UNREACHABLE``: it ran when its node was last heard of.
    ``FORGOTTEN``: the scheduler does not know the job. ``UNREADABLE``: no answer.
    """

    RUNNING = "running"  # or waiting for nodes, or ending: not ended
    HELD = "held"  # or suspended, or asking for what the machine does not have
    UNREACHABLE = "unreachable"
    SUCCESS = "success"
    FAILED = "failed"
    OVER = "over"  # ended, without an exit status
    FORGOTTEN = "forgotten"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Job:
    """A batch job to submit.

    script: an executable file. output: where the scheduler puts what the job prints. options: of the machine, such as
    queue, allocation flags and attributes. ranks_per_node: of the runs in the job; where jobs get whole nodes, this and
    what a rank has do not matter.
    """

    name: str
    script: str
    output: str
    nodes: int
    minutes: int
    account: str
    options: tuple[str, ...] = ()
    ranks_per_node: int = 1
    cores_per_rank: int = 1
    gpus_per_rank: int = 0


BATCH_SYSTEMS: Registry[type["Scheduler"]] = Registry("batch system")


class Scheduler(ABC):
    """One batch system."""

    submit_program: str
    job_id_variable: str  # of the job's environment

    @abstractmethod
    def submit_line(self, job: Job) -> list[str]:
        """The command line, a list, that submits a `Job`."""

    @abstractmethod
    def job_id(self, answer: str) -> str | None:
        """The job's id in what the submit command printed, or None."""

    @abstractmethod
    def status_line(self, job_id: str) -> list[str]:
        """The command line that asks for a job's state."""

    def second_line(self, job_id: str, exit_code: int | None, output: str, errors: str) -> list[str] | None:
        """The command line that asks once more, where the answer to `status_line` is that it may not be asked so."""
        return None

    @abstractmethod
    def state(self, exit_code: int | None, output: str, errors: str) -> State:
        """The `State` in the answer of the status command."""

    @abstractmethod
    def cancel_line(self, job_ids: Sequence[str]) -> list[str]:
        """The command line that ends jobs."""

    def record(self, job_id: str, folder: AnyPath) -> State:
        """The `State` in what the scheduler records about ended jobs; `State.FORGOTTEN` if it records nothing.

        folder: where the job's output goes.
        """
        return State.FORGOTTEN
