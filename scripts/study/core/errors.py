"""The one error a user is meant to see, and how a script reports it."""

import sys

LONGEST = 1200  # characters of a message


class StudyError(Exception):
    """Something the user can put right: the message names the place, what was expected and what to do, on one line."""

    def __str__(self):
        """What was wrong may hold line ends, or a book."""
        text = " ".join(super().__str__().split())
        return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"


def exit_with_message(main):
    """Run a script's ``main``; a `StudyError` or `OSError` becomes one line on standard error and exit code 1."""
    try:
        main()
    except (StudyError, OSError) as error:  # OSErrors name the file and the reason: a full disk, a right that lacks
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
