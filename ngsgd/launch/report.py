"""What a launcher says on stderr."""

import os
import sys

from ngsgd.launch import logfile
from ngsgd.launch.request import Request


def say(text: str) -> None:
    """One line that begins with the launcher's name."""
    print(f"{os.path.basename(sys.argv[0])}: {text}", file=sys.stderr, flush=True)


def say_again(job: int, why: str, attempt: int, tries: int) -> None:
    say(f"job {job} failed ({why}), trying it again ({attempt} of {tries})")


def report_failures(request: Request, failed: dict[int, str]) -> None:
    """Say which jobs failed (number -> how it ended) and show the end of the first one's log."""
    first = min(failed)
    log = request.log_of(first)
    if len(request.jobs) == 1:
        say(f"job failed ({failed[first]}), log is in {log}")
    else:
        say(f"{len(failed)} of {len(request.jobs)} jobs failed, log of job {first} ({failed[first]}) is in {log}")
    for line in logfile.tail(log):
        print(f"  {line}", file=sys.stderr)
