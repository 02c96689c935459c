"""What is wrong with a block of lines."""


class BlockFault(ValueError):
    """A line of a block cannot be parsed; row: its position in the block, or that of an earlier line."""

    def __init__(self, message: str, row: int = 0) -> None:
        super().__init__(message)
        self.row = row
