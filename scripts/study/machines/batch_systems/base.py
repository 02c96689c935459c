"""What a scheduler's class does: build exact command lines, and read exact answers. It runs nothing itself."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """What a scheduler says of a job. ``FORGOTTEN``: it does not know the job (any more). ``UNREADABLE``: no answer."""

    RUNNING = "running"  # or waiting, held, suspended, ending: not over
    SUCCESS = "success"
    FAILED = "failed"
    OVER = "over"  # ended, it does not say how
    FORGOTTEN = "forgotten"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Job:
    """A batch job to submit. script: an executable file; output: where the scheduler puts what the job prints."""

    name: str
    script: str
    output: str
    nodes: int
    minutes: int
    account: str
    options: tuple = ()  # of the machine: queue, allocation flags, attributes


class Scheduler(ABC):
    """One batch system."""

    @abstractmethod
    def submit_line(self, job):
        """The command line, a list, that submits a `Job`."""

    @abstractmethod
    def job_id(self, answer):
        """The job's id in what the submit command printed, or None."""

    @abstractmethod
    def status_line(self, job_id):
        """The command line that asks for a job's state."""

    @abstractmethod
    def state(self, exit_code, output, errors):
        """The `State` in the answer of the status command."""

    @abstractmethod
    def cancel_line(self, job_ids):
        """The command line that ends jobs."""

    def record(self, job_id, folder):
        """The `State` in what the scheduler writes down of ended jobs, `State.FORGOTTEN` where it writes nothing.

        folder: where the job's output goes.
        """
        return State.FORGOTTEN
