"""pandas, imported when it is first used: its import takes longer than a run's launch and record otherwise do.

Write ``from study.core.lazy import pandas as pd``, and ``from __future__ import annotations`` where a type of pandas
is named. A rank imports it with the loaders that need it (`study.data.loaders.import_modules`), so that no phase but
start-up has its import.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
else:

    class _Module:
        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            return getattr(importlib.import_module(self._name), name)

    pandas = _Module("pandas")

__all__ = ["pandas"]
