"""The error class that users see, and how a script reports it."""

import os
import re
import sys
from collections.abc import Callable, Iterable

from study.core.wording import to_one_line

NO_FIGURES = "Matplotlib is not installed, so no figures are drawn; pip install matplotlib"
LONGEST = 1200  # characters of a message
OPERATIONS = re.compile(r"\{\{.*?\}\}|\[Op:.*?\]( name:)?")  # in TensorFlow's messages


class StudyError(Exception):
    """An error that the user can fix: the message names the place, what was expected and what to do, on one line."""

    def __str__(self) -> str:
        """The message on one line, shortened: those of libraries may be long or have line ends."""
        return to_one_line(super().__str__(), LONGEST)

    @property
    def lines(self) -> list[str]:
        """The message's lines."""
        return [str(self)]


class StudyErrors(StudyError):
    """Several errors found together, one line each."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = [to_one_line(line, LONGEST) for line in lines]
        super().__init__("; ".join(self._lines))

    @property
    def lines(self) -> list[str]:
        """One line per error."""
        return self._lines


def exit_with_message(main: Callable[[], object]) -> None:
    """Run a script's ``main``; a `StudyError` or `OSError` ends it with one line on standard error and exit code 1.

    Where the reader of standard output has ended, as ``| head`` does, the script ends too, without a message. Ctrl-C is
    no error: it ends the script with exit code 130, as shells have it.
    """
    try:
        main()
        if not sys.stdout.closed:  # as the sampler does, once it has told what it found
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what Python flushes at its end goes there
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except StudyError as error:
        print("\n".join(f"error: {line}" for line in error.lines), file=sys.stderr)
        sys.exit(1)
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        print(f"error: {NO_FIGURES}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:  # names the file and the reason, such as a full disk
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def extract_message(error: BaseException) -> str:
    """The text of a library's error, without the names of TensorFlow's operations."""
    return OPERATIONS.sub("", str(getattr(error, "message", error))).strip()
