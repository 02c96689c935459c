"""The data of a figure that draws a table: a panel for each of its groups of rows."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from study.report.figures.description import Description


@dataclass(frozen=True)
class TablePanels:
    """The figure's texts, and (title, rows of the table) of each panel, with the columns that its figure adds."""

    name: str
    title: str
    caption: str
    subtitle: str
    panels: list[tuple[str, pd.DataFrame]]

    @classmethod
    def from_description(
        cls, description: Description, subtitle: str, panels: list[tuple[str, pd.DataFrame]]
    ) -> TablePanels:
        """Make the data with the texts of a figure's YAML."""
        return cls(description.name, description.title, description.caption, subtitle, panels)
