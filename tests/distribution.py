"""Which worker runs which tests: a file's on one, and all that are marked ``timed`` on one, after all others.

A timed test waits until no other test runs, and the others wait for it. Amid long tests that left workers idle for
minutes; at the end it costs its own time.
"""

from xdist.scheduler import LoadFileScheduling


def place(item, seconds):
    """By this key tests are sorted: the longest files first, the timed tests last. seconds: by file."""
    own = seconds.get(file_of(item.nodeid), 0)
    # Of the timed tests, those of long files last: a file of nothing but timed tests takes long, see `timed_of`.
    return (1, own) if item.get_closest_marker("timed") else (0, -own)


def file_of(test):
    """The file of a test's node id."""
    return test.partition("::")[0]


def timed_of(tests):
    """The node ids, of tests in the order of `place`, that come again after other files: the timed ones."""
    ended, file = set(), None
    for number, test in enumerate(tests):
        if file_of(test) != file:
            ended.add(file)
            file = file_of(test)
            if file in ended:
                return set(tests[number:])
    return set()


class TimedLast(LoadFileScheduling):
    """As ``--dist loadfile --no-loadscope-reorder``, with the timed tests of all files as one unit, the last."""

    timed = frozenset()

    def schedule(self):
        if self.collection is None and self.registered_collections:
            self.timed = timed_of(next(iter(self.registered_collections.values())))
        super().schedule()

    def _split_scope(self, nodeid):
        return "timed" if nodeid in self.timed else file_of(nodeid)
