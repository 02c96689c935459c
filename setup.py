"""The package: its compiled parser of text tables, and the workflow that an installed `study` runs.

Without a C++17 compiler the parser is left out, and the study does without it. A wheel has the repository's folders
below ``candle_scaling_study``, so that an installed library finds Snakefile, rules and configuration as in a clone.
"""

import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.install_lib import install_lib

HERE = Path(__file__).parent
FOLDER = "candle_scaling_study"
WORKFLOW = ("Snakefile", "rules", "config", "profiles", "envs", "scripts")


class InstallWorkflow(install_lib):
    """Install the library within the repository's folders, and a line by which Python finds it there."""

    def install(self) -> list[str]:
        """Copy the workflow beside the library; returns the files."""
        super().install()
        packages = Path(self.install_dir)
        home = packages / FOLDER
        for name in WORKFLOW:
            copy = shutil.copytree if (HERE / name).is_dir() else shutil.copy2
            options = {"ignore": shutil.ignore_patterns("__pycache__", "*.so")} if (HERE / name).is_dir() else {}
            home.mkdir(parents=True, exist_ok=True)
            copy(HERE / name, home / name, **options)
        for parser in (packages / "study").rglob("_numbers*.so"):
            shutil.copy2(parser, home / "scripts" / parser.relative_to(packages))
        shutil.rmtree(packages / "study")
        (packages / f"{FOLDER}.pth").write_text(f"{FOLDER}/scripts\n")
        return [str(path) for path in (*home.rglob("*"), packages / f"{FOLDER}.pth") if path.is_file()]


setup(
    cmdclass={"install_lib": InstallWorkflow},
    ext_modules=[
        Extension(
            "study.data._numbers",
            ["scripts/study/data/_numbers.cpp"],
            extra_compile_args=["-std=c++17", "-O3"],
            optional=True,
        )
    ],
)
