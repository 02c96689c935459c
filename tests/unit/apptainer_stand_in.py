"""Stands for apptainer, which cannot be installed everywhere: it refuses what apptainer refuses, and runs the command.

An image is a file that holds the folder of the programs within it. The command sees all files of this host, so the
stand-in itself refuses a working folder, and a folder that a variable names, which no ``--bind`` brings into the
container. Variables of the host reach the command, but for PATH, which is the image's, as with apptainer
(https://apptainer.org/docs/user/main/environment_and_metadata.html).
"""

import json
import os
import sys
from pathlib import Path

WITH_VALUE, FLAGS = ("--bind", "--pwd"), ("--nv", "--rocm")
SEEN = ("STUDY_RUN_FOLDER", "STUDY_EVENTS")  # paths that the command uses


def main() -> None:
    given = sys.argv[1:]
    if not given or given.pop(0) != "exec":
        fail("Error for command: unknown command")
    options: list[tuple[str, str]] = []
    while given and given[0].startswith("-"):
        name = given.pop(0)
        if name not in (*WITH_VALUE, *FLAGS):
            fail(f'Error for command "exec": unknown flag: {name}')
        options.append((name, given.pop(0) if name in WITH_VALUE else ""))
    if len(given) < 2:
        fail('Error for command "exec": requires at least 2 arg(s)')
    image, *words = given
    if not Path(image).is_file():
        fail(f"FATAL:   could not open image {image}: failed to retrieve path: no such file or directory")
    binds = [Path(value) for name, value in options if name == "--bind"]
    for bind in binds:
        if not bind.exists():
            fail(f"FATAL:   container creation failed: mount {bind}: mount source {bind} doesn't exist")
    folder = next(value for name, value in options if name == "--pwd")
    for path in (Path(folder), *(Path(os.environ[name]).parent for name in SEEN if name in os.environ)):
        if not any(path.is_relative_to(bind) for bind in binds):
            fail(f"FATAL:   {path} is not in the container")
    os.chdir(folder)
    variables = {**os.environ, "PATH": Path(image).read_text().strip(), "OF_CONTAINER": json.dumps(options)}
    try:
        os.execvpe(words[0], words, variables)  # noqa: S606
    except OSError:
        fail(f'FATAL: "{words[0]}": executable file not found in $PATH')


def fail(line: str) -> None:
    print(line, file=sys.stderr)
    sys.exit(255)


if __name__ == "__main__":
    main()
