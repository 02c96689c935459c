"""Print where the report of the configured study is."""

from pathlib import Path

from study.core import configuration, paths
from study.core.errors import StudyError, exit_with_message


def main() -> None:
    """Print the path."""
    config = configuration.load(configuration.CONFIG / "config.yaml", "config")
    folder = paths.study_folder(paths.ROOT / config["results_dir"] / config["machine"], config["study"])
    path = Path(folder, "report.html")
    if not path.exists():
        raise StudyError(f"{path} is not there; make it with: make report")
    print(f"The report is {configuration.shown(path)}; open it in a browser.")


if __name__ == "__main__":
    exit_with_message(main)
