"""Rounds of chaos: several strikes at once at random moments of a small study, and what must be true afterwards.

A round's seed fixes where it starts, which strikes hit what, and when. What the machine is doing at that moment is not
fixed: the moment counts from when the target is there, and a process may be faster or slower than last time.
"""

import json
import random
import re
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

import battlefield
import strikes
import verdict
from battlefield import Field, make_ready
from project import Project
from registry import STRIKES

# What is missing when a round starts, and which targets it therefore cannot have.
STARTS = {
    "nothing": (["data", "results"], set()),
    "data": (["results"], battlefield.OF_DATA),
    "runs": (["results/local/studies", "record.json"], battlefield.OF_DATA | battlefield.OF_RUN),
}
MOST_STRIKES = 4
LOOK_S = 0.1
LONGEST_DELAY_S = 2.0
QUIET_S = 600  # after Snakemake's end, within which everything that it started has ended
TRIES = 8


@dataclass(frozen=True)
class Blow:
    """One strike of a round. Shares are from 0 to 1.

    moment: share of the time that the study takes undisturbed, before which nothing happens; it then waits for its
    target and for ``delay_s`` seconds more. which: of several targets. how: see `registry.Strike`. lasts: share of that
    time after which it is undone.
    """

    strike: str
    target: str
    moment: float
    delay_s: float
    which: float
    how: float
    lasts: float

    def __str__(self):
        return f"{self.strike} ({self.target}) at {self.moment:.2f} + {self.delay_s:.1f} s"


@dataclass(frozen=True)
class Plan:
    """A round's start, a key of `STARTS`, and its strikes."""

    start: str
    blows: tuple

    @classmethod
    def of(cls, seed):
        """What the seed fixes."""
        chance = random.Random(f"chaos {seed}")
        start = chance.choice(list(STARTS))
        absent = STARTS[start][1]
        return cls(start, tuple(_blow(chance, absent) for _ in range(chance.randint(1, MOST_STRIKES))))

    def has(self, name):
        """Whether one of its strikes has this name."""
        return any(blow.strike == name for blow in self.blows)


def _blow(chance, absent):
    strike = STRIKES[chance.choice(list(STRIKES))]
    targets = [target for target in strike.targets if target not in absent]
    moment = chance.choice([0.0, chance.random()])  # half of them as soon as their target is there
    return Blow(strike.name, chance.choice(targets), round(moment, 3), round(chance.uniform(0, LONGEST_DELAY_S), 2),
                chance.random(), chance.random(), round(chance.uniform(0.02, 1), 3))  # fmt: skip


@dataclass
class Reference:
    """The undisturbed study: its project, and how many seconds it takes from each of the `STARTS`."""

    project: object
    seconds: dict

    @classmethod
    def make(cls, folder):
        """Run the study once from nothing; raises `RuntimeError` if a run of it fails."""
        project = make_ready(folder)
        begun = time.time()
        with Field(project) as undisturbed:
            code, said = undisturbed.run()
        failed = [each for each in _outcomes(project) if each["status"] != "ok"]
        if code or failed:  # on a machine that is too busy, a run can look like one that hangs
            raise RuntimeError(f"the undisturbed study failed: {failed or said[-3000:]}")
        return cls(project, _seconds(project.root / battlefield.DISK, begun, time.time()))

    def copy(self, folder, start):
        """A copy of the project from which ``start`` takes what is not made yet."""
        root = folder / "project"
        shutil.copytree(self.project.root, root, symlinks=True)
        disk = root / battlefield.DISK
        for name in STARTS[start][0]:
            for path in [disk / name] if "." not in name else list(disk.rglob(name)):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return Project(root, battlefield.NAME)


def _outcomes(project):
    disk = project.root / battlefield.DISK
    return [json.loads(path.read_text()) for path in disk.glob(battlefield.ARTEFACTS["an outcome"])]


def _seconds(disk, begun, ended):
    """{start: seconds from there to the end}, by when files were written; from each, Snakemake starts first."""

    def written(target):
        return [path.stat().st_mtime for path in disk.glob(battlefield.ARTEFACTS[target])]

    starting = min(written("a raw file")) - begun
    return {
        "nothing": ended - begun,
        "data": ended - max(written("a sidecar")) + starting,
        "runs": ended - max(written("an outcome")) + starting,
    }


@dataclass
class Round:
    """One round: what happened, and what is wrong, a list of texts."""

    seed: int
    plan: Plan
    told: list = field(default_factory=list)
    wrong: list = field(default_factory=list)
    seconds: float = 0.0


def play(seed, reference, folder):
    """One round in ``folder``; returns the `Round`."""
    done = Round(seed, Plan.of(seed))
    begun = time.monotonic()
    project = reference.copy(Path(folder), done.plan.start)
    with Field(project, done.plan.has("the disk is full"), done.plan.has("out of memory")) as field:
        try:
            _disturb(field, done, reference)
            done.wrong += verdict.left_behind(field)
            if not done.wrong:
                if not done.plan.has("the configuration is edited"):  # its tables may be those of the edited study
                    done.wrong += verdict.wrong_now(field, reference)
                _recover(field, done, reference)
        except Stuck as error:
            done.wrong.append(str(error))
        except Exception as error:  # noqa: BLE001  the other rounds are played all the same
            done.wrong.append(f"{type(error).__name__}: {error}")
    done.seconds = time.monotonic() - begun
    return done


class Stuck(Exception):
    """Something did not end, or the way on is not told."""


def _disturb(field, done, reference):
    """Run the study under the strikes until it has ended and all is quiet; then undo what can be undone."""
    process, begun = field.start(), time.monotonic()
    pending, seen, undo = list(done.plan.blows), {}, []
    limit_s, whole_s = battlefield.WAIT_S, reference.seconds[done.plan.start]
    while process.poll() is None:
        present = time.monotonic() - begun
        for blow in list(pending):
            if present >= blow.moment * whole_s and _struck(field, blow, seen, present, undo, done, whole_s):
                pending.remove(blow)
        for due, function in [each for each in undo if each[0] <= present]:
            function()
            undo.remove((due, function))
        if present > limit_s:
            raise Stuck(f"Snakemake has not ended after {limit_s} s")
        time.sleep(LOOK_S)
    for _, function in reversed(undo):
        function()
    _wait_for_quiet(field)
    for blow in pending:
        if blow.strike not in strikes.AT_REST or not _hit(field, blow, undo, done, time.monotonic() - begun, 0.0):
            done.told.append(f"missed: {blow}")


def _struck(field, blow, seen, present, undo, done, whole_s):
    """Hit the blow's target if it is there for long enough; whether that was done."""
    if not field.find(blow.target):
        return False
    if present < seen.setdefault(blow, present) + blow.delay_s:
        return False
    return _hit(field, blow, undo, done, present, present + blow.lasts * whole_s)


def _hit(field, blow, undo, done, present, until):
    found = field.find(blow.target)
    if not found:
        return False
    try:
        text, back = STRIKES[blow.strike].function(field, found[int(blow.which * len(found))], blow.how)
    except (OSError, battlefield.psutil.Error):  # it is gone, try the next one
        return False
    if back:
        undo.append((until, back))
    done.told.append(f"{present:.1f} s: {blow.strike}, {blow.target}: {text}")
    return True


def _wait_for_quiet(field):
    deadline = time.monotonic() + QUIET_S
    while found := field.processes():
        if time.monotonic() > deadline:
            names = ", ".join(f"{each.pid} {battlefield.role(each)}" for each in found)
            raise Stuck(f"{QUIET_S} s after Snakemake's end there are still: {names}")
        time.sleep(LOOK_S)


def _recover(field, done, reference):
    """What a user does next: start Snakemake again and do what it says, until the tables are those of the reference."""
    for _ in range(TRIES):
        code, said = field.run()
        _wait_for_quiet(field)
        done.wrong += [f"a traceback: {each}" for each in verdict.tracebacks(said)]
        if code:
            if not _does_as_told(field, said, done):
                raise Stuck(f"Snakemake does not go on and does not say what to do: {' '.join(said.split())[-1500:]}")
            continue
        repeated = verdict.runs_to_repeat(field)
        if not repeated:
            break
        done.wrong += verdict.wrong_now(field, reference)
        for folder, message in repeated:  # as the documentation says: it runs again when its folder is deleted
            done.told.append(f"failed run, or one without energy: {message}")
            _does_as_told(field, f"error: {message}", done)
            shutil.rmtree(folder)
    else:
        raise Stuck(f"the study is not complete after {TRIES} starts of Snakemake")
    done.wrong += verdict.left_behind(field) + verdict.wrong_at_the_end(field, reference)


def _does_as_told(field, said, done):
    """Unlock, and delete what the messages say is to be deleted; whether there was such a thing."""
    if "--unlock" in said or "cannot be locked" in said:
        done.told.append("unlocked")
        code, said = field.run("--unlock")
        return code == 0
    acted = False
    for line in dict.fromkeys(line.strip() for line in said.splitlines()):
        for path in _to_delete(line):
            path = field.root / path
            if path.is_relative_to(field.disk) and path.exists():
                done.told.append(f"deleted as told: {path.relative_to(field.disk)}")
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                acted = True
    return acted


def _to_delete(line):
    """The paths that a line of error says may be deleted."""
    if found := re.search(r"\bdelete (?P<path>[^\s;,]*/[^\s;,]+)", line):
        return [found["path"]]
    if re.search(r"\bdelete (it|this folder)\b", line) and (
        found := re.search(r"(?:^|\s)(?P<path>[^\s:]+/[^\s:]+): ", line)
    ):
        return [found["path"]]
    return []
