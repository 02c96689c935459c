"""Registries: everything that configuration files can name (tables, loaders, ...) is registered where it is defined."""

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from types import ModuleType
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Names and their values, in the order of registration."""

    def __init__(self, what: str) -> None:
        """what: the kind of thing, for messages: ``loader``."""
        self.what = what
        self._entries: dict[str, T] = {}

    def add(self, name: str, value: T) -> T:
        """Register ``value`` as ``name``; raises `ValueError` if the name is taken."""
        if name in self._entries:
            raise ValueError(f"{self.what} {name!r} is registered twice")
        self._entries[name] = value
        return value

    def register(self, name: str) -> Callable[[T], T]:
        """Register the decorated object as ``name``."""
        return lambda value: self.add(name, value)

    def __getitem__(self, name: str) -> T:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    # As Mapping would have them, but without a call for each entry: expanding a study asks for millions.
    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._entries.keys()

    def values(self) -> ValuesView[T]:
        """The values."""
        return self._entries.values()

    def items(self) -> ItemsView[str, T]:
        """The names with their values."""
        return self._entries.items()


def import_submodules(package: str) -> None:
    """Import every module of ``package``, so that all its entries are registered.

    `study.core.code_version` treats a package that calls this as importing all its modules.
    """
    path = importlib.import_module(package).__path__
    for module in sorted(pkgutil.walk_packages(path, f"{package}."), key=lambda module: module.name):
        importlib.import_module(module.name)


def submodule(package: str, part: str, name: str) -> ModuleType | None:
    """Import ``package.part.name`` and return it; None if there is no such module.

    `study.core.code_version` treats a module that calls this as importing the module ``name`` of every part.
    """
    path = f"{package}.{part}.{name}"
    try:
        is_there = importlib.util.find_spec(path) is not None
    except ModuleNotFoundError as error:  # the part is no package, or is not there
        if error.name is None or not error.name.startswith(f"{package}.{part}"):
            raise
        return None
    return importlib.import_module(path) if is_there else None
