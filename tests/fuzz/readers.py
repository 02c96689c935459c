"""The readers of the project that are fuzzed, by name.

An entry is a class: ``prepare`` writes valid files, with the project's own code, and returns the one that is damaged;
``damage`` is a strategy of its broken contents; ``read`` lets the project read it and returns what it read; ``expect``
reads the same file with another program, for comparison. Reading must end in a result or in a `StudyError` that names
the file.
"""

import damage

READERS = {}
NOTHING_TO_COMPARE = object()


class Reader:
    """An entry, which has ``prepare`` and ``read`` too; see the module."""

    name = format = ""
    is_slow = False

    def damage(self, content):
        """Broken contents by the file's format."""
        return getattr(damage, f"{self.format}_files", damage.cut)(content)

    def expect(self, path):
        """What another reader finds in a file that the project has taken; compared with ``==``."""
        return NOTHING_TO_COMPARE

    def names(self, path):
        """Texts of which a message must have one: the file, or what the user knows it by."""
        return (path.name,)


def reader(name, format, **attributes):
    """Register the decorated class, or another one of the same methods with these attributes."""

    def register(kind):
        READERS[name] = type(kind.__name__, (kind,), {"name": name, "format": format, **attributes})
        return kind

    return register


def import_all():
    """Import all modules of readers."""
    import readers_of_data  # noqa: F401, I001
    import readers_of_images  # noqa: F401
    import readers_of_runs  # noqa: F401
    import readers_of_configuration  # noqa: F401  last: after it, the process reads a damaged config/

    return READERS
