"""Print the tables of the configured study and where they are."""

from study.core import configuration
from study.core.errors import StudyError, exit_with_message
from study.experiment import grid


def main():
    """Print every table of the study."""
    config = configuration.load(configuration.CONFIG / "config.yaml", "config")
    study = grid.load_study(config["study"])
    folder = configuration.ROOT / config["results_dir"] / config["machine"]
    for table in study.tables:
        path = folder / "tables" / f"{table}.md"
        if not path.exists():
            raise StudyError(
                f"{path} is not there; make it with: snakemake --profile local {configuration.shown(path)}"
            )
        print(f"\n{path.read_text(encoding='utf-8')}")
    print(f"The tables are {configuration.shown(folder)}/tables/NAME.csv, .md and .tex;")
    print(f"a row a run is in {configuration.shown(folder)}/runs.csv, each naming its record.")


if __name__ == "__main__":
    exit_with_message(main)
