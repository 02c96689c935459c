"""The one fake of `study.communication.collectives.Collectives`: one rank whose companions are played from a script.

Nothing is sent anywhere. It refuses what Horovod refuses: process sets that were not made,
anything after it was closed.
"""

import threading

import numpy as np

from study.communication.collectives import RanksOnly


class FakeCommunicator(RanksOnly):
    """Rank ``rank`` of ``size``; the others give what this rank gives, or what ``others`` says.

    places: (host, local rank) of every rank, one host by default. agree: whether the others' values equal this rank's.
    gathered: answers of the next gathers, in order, instead of that.
    """

    def __init__(self, size=1, rank=0, places=None, agree=True):
        self.places = places or [("host", number) for number in range(size)]
        self.rank, self.size = rank, len(self.places)
        self.local_rank, self.local_size = self.places[rank][1], size
        self.own_threads = frozenset()
        self.libraries, self.strategy = {"controller": "none"}, None
        self.sends_sparse = False
        self.agree, self.gathered = agree, []
        self.optimizers, self.broadcasts = [], []
        self.sets, self.closed = [], False
        self.now_s, self.are_together = 0.0, False

    def distribute_optimizer(self, optimizer, compression="none", backward_passes=1):
        """The optimizer as it is: there are no other gradients."""
        self._check()
        self.optimizers.append(optimizer)
        return optimizer

    def has_averaged(self, optimizer, variables):
        """Not known: nothing is averaged."""

    def observe_gradients(self, optimizer, observe):
        """As of a single rank."""
        self._check()
        compute = optimizer.compute_gradients

        def observed(*arguments):
            pairs = compute(*arguments)
            observe([gradient for gradient, _ in pairs])
            return pairs

        optimizer.compute_gradients = observed

    def broadcast_variables(self, variables):
        """Remember what was broadcast."""
        self._check()
        self.broadcasts.append(len(variables))

    def gather(self, value):
        """The answers that were set; the places for a place; else this rank's value of everyone."""
        self._check()
        self.are_together = False
        if self.gathered:
            return self.gathered.pop(0)
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
            return list(self.places)
        others = value if self.agree else "something else"
        return [value if rank == self.rank else others for rank in range(self.size)]

    def gather_bytes(self, sent, members=None):
        """This rank's bytes, once per member."""
        self._check(members)
        assert sent.dtype == np.uint8
        return np.concatenate([sent] * len(members or range(self.size)))

    def broadcast_bytes(self, contents, members=None):
        """What this rank has of each root."""
        self._check(members)
        assert all(each.dtype == np.uint8 for each in contents.values())
        return list(contents.values())

    def build_concurrent_broadcast(self):
        """The same, one after another."""
        self._check()
        return self.broadcast_bytes

    def build_allreduce(self, size):
        """A hundred megabytes per second, by `clock`. The first one after a gather waits ten seconds for the others."""
        self._check()

        def allreduce():
            self.now_s += size / 1e8 + (0 if self.are_together else 10)
            self.are_together = True

        return allreduce

    def clock(self):
        """Seconds, which pass only in allreduces."""
        return self.now_s

    def close(self):
        """Nothing may follow."""
        self._check()
        self.closed = True

    def _check(self, members=None):
        assert not self.closed, "the communicator was closed"
        if members is not None and len(members) not in (1, self.size):
            assert members in self.sets, f"{members} is no process set that was made"
        assert members is None or self.rank in members


class ThreadedCommunicator(FakeCommunicator):
    """Rank ``rank`` of several that are threads of one process: what they send reaches the others.

    Each process set has a table, on which all its members lay their values before any takes the others'.
    """

    @classmethod
    def several(cls, size, sets=()):
        """The communicators of ``size`` ranks. sets: process sets besides the one of all ranks."""
        tables = {tuple(each): (threading.Barrier(len(each)), {}) for each in (range(size), *sets)}
        found = [cls(size, rank) for rank in range(size)]
        for each in found:
            each.tables, each.sets = tables, [tuple(members) for members in sets]
        return found

    def gather(self, value):
        """``value`` of every member."""
        self._check()
        return self._exchanged(value, None)

    def gather_bytes(self, sent, members=None):
        """All members' bytes, one after the other."""
        self._check(members)
        return np.concatenate(self._exchanged(sent, members))

    def broadcast_bytes(self, contents, members=None):
        """The roots' bytes; lengths must agree, as Horovod demands."""
        self._check(members)
        every = self._exchanged(contents, members)
        assert len({tuple((root, len(each)) for root, each in sorted(one.items())) for one in every}) == 1
        ranks = members or tuple(range(self.size))
        return [every[ranks.index(root)][root] for root in contents]

    def _exchanged(self, value, members):
        ranks = tuple(members or range(self.size))
        barrier, table = self.tables[ranks]
        table[self.rank] = value
        barrier.wait(100)
        found = [table[rank] for rank in ranks]
        barrier.wait(100)
        return found
