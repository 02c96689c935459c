"""The report's files besides the study's tables and figures: templates, findings, recommendations."""

import hashlib
from pathlib import Path

TEMPLATES = Path(__file__).with_name("templates")
FINDINGS = "findings.json"
RECOMMENDATIONS = "recommendation"  # the folder of the goals' folders


def compute_templates_digest() -> str:
    """Compute 12 hex digits that change with the templates."""
    total = hashlib.sha256()
    for path in sorted(TEMPLATES.iterdir()):
        total.update(f"{path.name}\0".encode() + path.read_bytes())
    return total.hexdigest()[:12]


def list_goal_folders(folder: str | Path) -> list[Path]:
    """List the folders of the goals in a study's folder that have a recommendation."""
    return sorted(path.parent for path in Path(folder, RECOMMENDATIONS).glob("*/recommendation.csv"))


def list_optional_files(folder: str | Path) -> list[Path]:
    """List the files in a study's folder that the report shows if they are there."""
    return [path for goal in list_goal_folders(folder) for path in sorted(goal.iterdir())]
