"""The panel on a terminal: what a person sees after all, by a small terminal of the test's own."""

import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

ROOT = Path(__file__).parents[1]
USE = """
import logging, subprocess, sys
logging.basicConfig(format="%(levelname)s %(message)s")
from ngsgd.report.display import make_display
display = make_display()
display.line("plan: [4] iterations")
assert display.stderr is None  # nothing to be disturbed yet
display.at(1, 4, "iteration 2", ["3 jobs at rate 0.01", "valid -1.5"], 70.0)
logging.warning("overfitting")
subprocess.run(["sh", "-c", "echo 'run.py: job failed' >&2; echo '  last line' >&2"], stderr=display.stderr)
display.tick()
display.line("iteration 2/4, valid -1.25")
subprocess.run(["sh", "-c", "printf 'unfini' >&2"], stderr=display.stderr)
display.tick()
display.at(2, 4, "iteration 3", ["4 jobs"])
subprocess.run(["sh", "-c", "echo shed >&2"], stderr=display.stderr)
if sys.argv[1] == "close":
    display.close()
    logging.warning("after")
else:
    sys.stdout.flush()
"""


def screen(text: str) -> list[str]:
    """The lines that a terminal shows after `text`, with the control sequences that rich uses."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", text):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part == "\r":
            column = 0
        elif part.startswith("\x1b["):
            if part.endswith("A"):
                row = max(0, row - int(part[2:-1] or 1))
            elif part.endswith("K"):
                assert part == "\x1b[2K", part
                lines[row] = ""
            else:
                assert part[-1] in "mhl", part
        else:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + part + line[column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in lines]


def on_a_terminal(*args: str) -> list[str]:
    """What is seen at the end of USE, run on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    env = os.environ | {"TERM": "xterm", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", USE, *args], stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    seen = b""
    while True:
        try:
            seen += os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert process.wait() == 0, seen.decode()
    return [line for line in screen(seen.decode()) if line]


def test_lines_warnings_and_what_others_say_stay_and_the_panel_goes():
    assert on_a_terminal("close") == [
        "plan: [4] iterations",
        "WARNING overfitting",
        "run.py: job failed",
        "  last line",
        "iteration 2/4, valid -1.25",
        "unfinished",
        "WARNING after",
    ]


def test_the_panel_shows_the_state_of_the_moment():
    *lines, head, details = on_a_terminal("stay")
    assert lines[-1] == "iteration 2/4, valid -1.25"
    assert re.fullmatch(r"iteration 3 +━+\S+ +2/4   0:0\d gone", head)
    assert details == "  4 jobs"
    assert len(head) <= 80
