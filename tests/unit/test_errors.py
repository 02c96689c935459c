"""How a script ends."""

import subprocess
import sys

SCRIPT = """
from study.core.errors import StudyError, exit_with_message
def main():
    {body}
exit_with_message(main)
"""


def ended(body, **options):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(body=body)], stderr=subprocess.PIPE, text=True, **options
    )


def test_a_mistake_is_one_line():
    process = ended('raise StudyError("a:\\n  what to do")')
    assert process.communicate()[1] == "error: a: what to do\n"
    assert process.returncode == 1


def test_no_message_where_nobody_reads_the_rest():
    """As with `| head -1`; more lines than a pipe holds."""
    process = ended("for n in range(100_000): print(n)", stdout=subprocess.PIPE)
    assert process.stdout.readline() == "0\n"
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 1


def test_no_message_from_a_script_that_has_closed_its_output():
    process = ended("import sys; sys.stdout.close()", stdout=subprocess.PIPE)
    assert process.communicate()[1] == ""
    assert process.returncode == 0


def test_ctrl_c_is_one_word():
    # A job in the background ignores the signal, and Python then leaves it so.
    handled = "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    process = ended(handled + "os.kill(os.getpid(), signal.SIGINT)")
    assert process.communicate()[1] == "interrupted\n"
    assert process.returncode == 130
