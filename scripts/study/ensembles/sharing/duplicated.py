"""Nothing is shared: every rank preprocesses all samples (pittman2018, section III-A)."""

from study.ensembles.content import Content
from study.ensembles.order import Block
from study.ensembles.sharing.base import WAYS, SharedBlocks, Way


@WAYS.register("duplicated")
class Duplicated(Way):
    """Every rank is the only reader of its own blocks, so nobody waits for another member."""

    readers, reader = 1, 0
    has_others = False

    def share(self, blocks: list[Block], own: Content | None) -> SharedBlocks:
        """Return the rank's own block: nothing is sent."""
        return [(block, own) for block in blocks if own is not None]
