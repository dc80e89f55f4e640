"""The log of a job: header, accounting and footer in the form of Kaldi's launchers:

- `# COMMAND`, `# Running on HOST`, `# Started at DATE`, `#`;
- whatever the command prints;
- `# Accounting: time=SECONDS threads=N elapsed_s=... cpu_s=... max_rss_mb=...`;
- `# Ended (code 0) at DATE, elapsed time SECONDS seconds`, or `(code 137; signal 9)`.
"""

import os
import time

TAIL_BYTES = 8192
TAIL_LINES = 10


def _date() -> str:
    return time.strftime("%a %b %d %H:%M:%S %Z %Y")


def header(command: str) -> str:
    lines = command.replace("\n", "\n# ")
    return f"# {lines}\n# Running on {os.uname().nodename}\n# Started at {_date()}\n#\n"


def footer(code: int, signal_number: int, elapsed_s: float, threads: int, cpu_s: float, max_rss_mb: float) -> str:
    ended = f"code {code}; signal {signal_number}" if signal_number else f"code {code}"
    return (
        f"# Accounting: time={elapsed_s:.0f} threads={threads} elapsed_s={elapsed_s:.3f} cpu_s={cpu_s:.3f}"
        f" max_rss_mb={max_rss_mb:.0f}\n"
        f"# Ended ({ended}) at {_date()}, elapsed time {elapsed_s:.0f} seconds\n"
    )


def open_log(path: str) -> int:
    """A descriptor of the emptied log `path`, its directory made. Raises OSError when it cannot be written."""
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)


def tail(path: str) -> list[str]:
    """The last lines that the command itself wrote, at most TAIL_LINES; none when the log is not there."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    lines = [line.rstrip() for line in text.splitlines()]
    return [line for line in lines if line and line != "#" and not line.startswith("# ")][-TAIL_LINES:]


def reason(path: str) -> str:
    """The error that a program of ours ended with, by its log; "" when there is none."""
    errors = [line for line in tail(path) if line.startswith("ERROR ")]
    return errors[-1].removeprefix("ERROR ") if errors else ""
