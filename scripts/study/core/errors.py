"""The error class that users see, and how a script reports it."""

import sys
from collections.abc import Callable

LONGEST = 1200  # characters of a message


class StudyError(Exception):
    """An error that the user can fix: the message names the place, what was expected and what to do, on one line."""

    def __str__(self) -> str:
        """On one line and shortened: messages of other libraries may have line ends or be very long."""
        text = " ".join(super().__str__().split())
        return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"


def exit_with_message(main: Callable[[], object]) -> None:
    """Run a script's ``main``; a `StudyError` or `OSError` becomes one line on standard error and exit code 1."""
    try:
        main()
    except (StudyError, OSError) as error:  # OSErrors name the file and the reason, such as a full disk
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
