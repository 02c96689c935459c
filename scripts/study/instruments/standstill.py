"""Time in which processes stood still: stopped, frozen by a control group, or suspended with their host or machine.

Whoever watches a run looks at the clock at a steady rate. A look that comes far too late shows that the watching
process did not run. CLOCK_BOOTTIME less CLOCK_MONOTONIC (clock_gettime(2)) is how long the host was suspended.
"""

import time

LEAST_S = 2.0  # a shorter delay is not taken for a standstill
INTERVALS = 5  # nor is one shorter than so many times the time until the look was due
LEAST_SUSPENDED_S = 0.1


class StandstillClock:
    """Tells for how long this process stood still between two looks at the clock."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin anew: what passed until now does not count."""
        self._at = time.monotonic()
        self._suspended = time.clock_gettime(time.CLOCK_BOOTTIME) - self._at

    def read_standstill_s(self, due_s: float, busy_s: float = 0.0, cores: int = 1) -> float:
        """Seconds of standstill since the last look; 0 if it came in time or if load explains the delay.

        Args:
            due_s: the time after which this look was due.
            busy_s: processor time that the run used meanwhile; a run that used its cores did not stand still.
            cores: number of logical CPUs of the run.
        """
        at, suspended = self._at, self._suspended
        self.restart()
        late = self._at - at - due_s
        is_explained = busy_s > due_s * cores + late / 2
        stopped_s = late if late + due_s > max(LEAST_S, INTERVALS * due_s) and not is_explained else 0.0
        suspended_s = self._suspended - suspended
        return stopped_s + (suspended_s if suspended_s > LEAST_SUSPENDED_S else 0.0)
