"""Successive halving: after the epochs that a run names, the worse half of an ensemble's members stops training.

Members end an epoch at different times, and each rank's thread goes on sharing blocks meanwhile. So there is no
collective operation: each member leaves its loss in a file, and waits for the others' files. The first one that has all
losses leaves the decision in a file of its own, which is never replaced. All members follow it, and so does a restarted
run that still has the folder.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from study.core import checked
from study.core.files import number_or_none, write_json
from study.instruments import heartbeats

POLL_S = 0.005, 0.1  # between two looks for files: at first, and the longest
LOSS = {"type": "object", "required": ["loss"], "properties": {"loss": {"type": ["number", "null"]}}}
DECISION = {
    "type": "object",
    "required": ["staying"],
    "properties": {"staying": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}},
}


@dataclass(frozen=True)
class Halving:
    """The halvings of an ensemble, seen from one of its members.

    Args:
        folder: of the files, which all members see.
        ranks: the folder of the ranks' heartbeats.
        epochs: after which half of the members stops, ascending; none for no halving.
        members: of the ensemble.
        own: the number of this member.
        patience_s: a member that has told nothing when no rank has sent a heartbeat for so long is lost. None to wait
            for it: the run ends as a whole then.
    """

    folder: Path
    ranks: Path
    epochs: Sequence[int]
    members: int
    own: int
    patience_s: float | None = None

    def begin(self) -> None:
        """Forget that this member has failed in an earlier attempt; call before any member trains."""
        self._failed(self.own).unlink(missing_ok=True)

    def fail(self) -> None:
        """Tell the others not to wait for this member."""
        if self.epochs:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._failed(self.own).touch()

    def has_stopped(self, epoch: int) -> bool:
        """Whether an earlier attempt has decided that this member stops after this epoch."""
        return epoch in self.epochs and self._decision(epoch).exists() and self.own not in self._staying(epoch)

    def goes_on(self, epoch: int, loss: float) -> bool:
        """Whether this member trains on after an epoch, from 1, that it has ended with this loss.

        It waits until the losses of all members that still train are known.
        """
        if epoch not in self.epochs:
            return True
        write_json(self._loss(epoch, self.own), {"loss": number_or_none(loss)})
        self._await_decision(epoch)
        return self.own in self._staying(epoch)

    def _await_decision(self, epoch: int) -> None:
        """Return when the decision is there; make it if this member is the first to know enough."""
        candidates = self._candidates(epoch)
        told: dict[int, float | None] = {}
        silence = None if self.patience_s is None else heartbeats.Silence(self.ranks, self.patience_s)
        pause, longest = POLL_S
        while not self._decision(epoch).exists():
            told |= self._told(epoch, [member for member in candidates if member not in told])
            if len(told) == len(candidates) or (silence and silence.is_long):
                self._decide(epoch, {member: told.get(member) for member in candidates})
                return
            time.sleep(pause)
            pause = min(2 * pause, longest)

    def _told(self, epoch: int, members: Sequence[int]) -> dict[int, float | None]:
        """The losses of those of the members that have told theirs; None for one that has failed before."""
        found: dict[int, float | None] = {}
        for member in members:
            if self._loss(epoch, member).exists():
                found[member] = _content(self._loss(epoch, member), LOSS)["loss"]
            elif self._failed(member).exists():
                found[member] = None
        return found

    def _decide(self, epoch: int, losses: Mapping[int, float | None]) -> None:
        """Leave the decision, unless another member was faster: it may have seen more or fewer losses."""
        staying = ranked(losses)[: (len(losses) + 1) // 2]
        aside = self.folder / f"decision-{epoch:06d}-by-{self.own:05d}.json"
        write_json(aside, {"staying": sorted(staying), "losses": {str(each): losses[each] for each in losses}})
        with contextlib.suppress(FileExistsError):
            os.link(aside, self._decision(epoch))
        aside.unlink()

    def _candidates(self, epoch: int) -> list[int]:
        """The members that have trained up to this halving, unless they failed."""
        place = self.epochs.index(epoch)
        return self._staying(self.epochs[place - 1]) if place else list(range(self.members))

    def _staying(self, epoch: int) -> list[int]:
        return _content(self._decision(epoch), DECISION)["staying"]

    def _loss(self, epoch: int, member: int) -> Path:
        return self.folder / f"loss-{epoch:06d}-{member:05d}.json"

    def _failed(self, member: int) -> Path:
        return self.folder / f"failed-{member:05d}"

    def _decision(self, epoch: int) -> Path:
        return self.folder / f"decision-{epoch:06d}.json"


def ranked(losses: Mapping[int, float | None]) -> list[int]:
    """The members from the best to the worst: by loss, equal ones by number; last those without a finite loss."""

    def place(member: int) -> tuple[bool, float, int]:
        loss = losses[member]
        is_known = loss is not None and math.isfinite(loss)
        return not is_known, loss if loss is not None and is_known else 0.0, member

    return sorted(losses, key=place)


def _content(path: Path, schema: dict[str, Any]) -> Any:
    """The content of a file of this module; raises `StudyError` for another one."""
    return checked.load_json(path, schema)
