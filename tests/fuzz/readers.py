"""The readers of the project that are fuzzed, by name: a reader and a strategy are one entry.

An entry is a class. ``prepare`` writes valid files, with the project's own code, and returns the one that is damaged;
``damage`` is a strategy of its broken contents; ``read`` lets the project read it and returns what it found; ``expect``
reads the same file with another program, for comparison. Reading must end in a result or in a `StudyError` that names
the file.
"""

from dataclasses import dataclass, field

READERS = {}
NOTHING_TO_COMPARE = object()


class Reader:
    """An entry, which has ``prepare``, ``damage`` and ``read`` too; see the module."""

    def expect(self, path):
        """What another reader finds in a file that the project has taken; compared with ``==``."""
        return NOTHING_TO_COMPARE

    def names(self, path):
        """Texts of which a message must have one: the file, or what the user knows it by."""
        return (path.name,)


@dataclass(frozen=True)
class Entry:
    """format: of the file. found: cases that once were wrong."""

    name: str
    format: str
    make: type
    slow: bool = False
    found: list = field(default_factory=list)


def reader(name, format, slow=False):
    """Register the decorated class."""

    def register(kind):
        assert name not in READERS, name
        READERS[name] = Entry(name, format, kind, slow)
        return kind

    return register


def import_all():
    """Import all modules of readers."""
    import readers_of_data  # noqa: F401, I001
    import readers_of_images  # noqa: F401
    import readers_of_reports  # noqa: F401
    import readers_of_runs  # noqa: F401
    import readers_of_configuration  # noqa: F401  last: after it, the process reads a damaged config/

    return READERS
