"""Texts that a shell would take for more than one word, for tests of whatever builds command lines."""

import subprocess

from hypothesis import strategies as st

# Each would make a file ``touched`` in the working directory, or be split, expanded or read as an option.
KNOWN = [
    "; touch touched", "$(touch touched)", "`touch touched`", "| touch touched", "& touch touched &",
    "\ntouch touched\n",
    "' ; touch touched ; '", '" ; touch touched ; "', "\\", "\\'", "a b", " a", "a ", "\t", "-x", "--output=x", "$HOME",
    "${HOME}", "*", "~", "!!", "#x", "%s", "{a,b}", "é", "$$", "$(shell touch touched)", "<(touch touched)",
]  # fmt: skip
TEXTS = st.one_of(st.sampled_from(KNOWN), st.text(st.sampled_from("ab -;$()`'\"\\\n\t|&<>*?~#{}%=!"), min_size=1))


def words_of(shell_text, folder, shell="sh", variables=None):
    """The words that a command line prints, each with a zero byte behind; nothing else may come of it.

    shell_text: of a command like ``printf '%s\\0' WORD ...``. folder: the working directory.
    """
    line = [shell, "-c", shell_text]
    done = subprocess.run(line, cwd=folder, capture_output=True, env=variables, timeout=60)
    assert not (folder / "touched").exists(), shell_text
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().split("\0")[:-1]
