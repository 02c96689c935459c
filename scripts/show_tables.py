"""Print the tables of the configured study and their paths."""

from pathlib import Path

from study.core import configuration, paths
from study.core.errors import StudyError, exit_with_message
from study.core.paths import ROOT
from study.experiment.expansion import load_study


def main() -> None:
    """Print every table of the study."""
    config = configuration.load(configuration.CONFIG / "config.yaml", "config")
    study = load_study(config["study"])
    folder = Path(paths.study_folder(ROOT / config["results_dir"] / config["machine"], study.name))
    for table in study.tables:
        path = folder / "tables" / f"{table}.md"
        if not path.exists():
            raise StudyError(
                f"{path} is not there; make it with: snakemake --profile local {configuration.shown(path)}"
            )
        print(f"\n{path.read_text(encoding='utf-8')}")
    print(f"The tables are {configuration.shown(folder)}/tables/NAME.csv, .md, .tex and .html;")
    print(f"one row per run is in {configuration.shown(folder)}/runs.csv, each naming its record.")


if __name__ == "__main__":
    exit_with_message(main)
