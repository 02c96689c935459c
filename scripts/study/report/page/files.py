"""The files that the report is made of besides the study's tables and figures."""

import hashlib
from pathlib import Path

TEMPLATES = Path(__file__).with_name("templates")
FINDINGS = "findings.json"
RECOMMENDATIONS = "recommendation"  # the folder of the goals' folders


def digest() -> str:
    """12 hex digits that change with the templates."""
    total = hashlib.sha256()
    for path in sorted(TEMPLATES.iterdir()):
        total.update(f"{path.name}\0".encode() + path.read_bytes())
    return total.hexdigest()[:12]


def goals(folder: str | Path) -> list[Path]:
    """The goals' folders in a study's folder, each with a recommendation."""
    return sorted(path.parent for path in Path(folder, RECOMMENDATIONS).glob("*/recommendation.csv"))


def optional(folder: str | Path) -> list[Path]:
    """The files in a study's folder that the report shows if they are there."""
    return [path for goal in goals(folder) for path in sorted(goal.iterdir())]
