"""Nothing is shared: every rank preprocesses all samples (pittman2018, section III-A)."""

from study.communication.collectives import Members
from study.ensembles.content import Content
from study.ensembles.order import Block
from study.ensembles.sharing.base import WAYS, Shared, Way


@WAYS.register("duplicated")
class Duplicated(Way):
    """Every rank is the only reader of its own blocks."""

    readers, reader = 1, 0
    has_others = False

    @staticmethod
    def process_sets(ranks: int, readers: int) -> list[Members]:
        """None."""
        return []

    def agree(self, blocks: int) -> None:
        """Nothing: nobody waits for another member."""

    def end(self) -> None:
        """Nothing: nobody waits for another member."""

    def share(self, blocks: list[Block], own: Content | None) -> Shared:
        """The rank's own block."""
        return [(block, own) for block in blocks if own is not None]
