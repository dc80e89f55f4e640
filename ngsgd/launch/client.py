"""The caller's side of a launcher: commands sent through `--cmd`, in the foreground or beside other work.

A launcher is whatever `--cmd` says ("run.py --mem 2G", "queue.pl"), called `CMD [options] [JOB=a:b] LOG COMMAND...`.
"""

import contextlib
import math
import os
import select
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable

from ngsgd.errors import DataError
from ngsgd.launch.patience import patience_s
from ngsgd.launch.process import die_with_parent

TICK_S = 1.0  # how often whoever waits for a launcher looks around
END_S = 20.0  # how long a launcher may take to end its jobs when asked to


class Launched:
    """A launcher at work.

    what  the work in words, for messages ("iteration 3, training")
    log   its log, with JOB in the name when there are several jobs
    tick  is called every second that is waited
    """

    def __init__(self, process: subprocess.Popen, what: str, log: str, tick: Callable[[], None]):
        self.process, self.what, self.log, self.tick = process, what, log, tick
        self.started = time.monotonic()

    def finished(self) -> bool:
        return self.process.poll() is not None

    def failed(self) -> bool:
        return self.process.poll() not in (None, 0)

    def wait(self) -> int:
        """Its exit status, when it has ended."""
        while not self.finished():
            wait_any([self], TICK_S)
            self.tick()
        return self.process.wait()

    def complaint(self) -> str:
        return f"{self.what} failed; see {self.log}"


class Launcher:
    """Starts commands through one `--cmd`. Raises DataError when that command is not there.

    keep: descriptors that launchers and jobs inherit, such as a lock to be held until the last of them has ended.
    stderr: says, for each launcher that is started, the descriptor for its messages; None: our stderr.
    tick: is called every second that is waited.
    """

    def __init__(
        self,
        cmd: str,
        keep: tuple[int, ...] = (),
        stderr: Callable[[], int | None] = lambda: None,
        tick: Callable[[], None] = lambda: None,
    ):
        self.keep, self.stderr, self.tick = keep, stderr, tick
        self.words = shlex.split(cmd)
        if not self.words or shutil.which(self.words[0]) is None:
            raise DataError(f"--cmd: no launcher '{cmd}' on PATH; expected e.g. run.py or 'run.py --max-jobs-run 2'")
        self.running: list[Launched] = []

    def start(
        self, what: str, log: str, words: list[str], jobs: tuple[int, int] | None = None, options: str = ""
    ) -> Launched:
        """Start `words` (with JOB standing for first..last of `jobs`) and return at once."""
        numbered = [f"JOB={jobs[0]}:{jobs[1]}"] if jobs else []
        return self._spawn([*self.words, *shlex.split(options), *numbered, log, *words], what, log)

    def run_script(self, words: list[str], log: str) -> None:
        """Run a script that launches jobs itself, its messages to our stderr. Raises DataError when it fails."""
        if shutil.which(words[0]) is None:
            raise DataError(f"{words[0]} is not on PATH: source path.sh")
        launched = self._spawn(words, words[0], log)
        if launched.wait() != 0:
            raise DataError(launched.complaint())

    def _spawn(self, command: list[str], what: str, log: str) -> Launched:
        parent = os.getpid()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stderr=self.stderr(),
            start_new_session=True,
            pass_fds=self.keep,
            preexec_fn=lambda: die_with_parent(parent, signal.SIGTERM),
        )
        launched = Launched(process, what, log, self.tick)
        self.running = [other for other in self.running if not other.finished()] + [launched]
        return launched

    def run(self, what: str, log: str, words: list[str], output: str) -> None:
        """As `start`, and wait for its end and for the file `output`.

        Raises DataError when it fails (the launcher has shown the end of the log by then) or the file does not come.
        """
        launched = self.start(what, log, words)
        if launched.wait() != 0:
            raise DataError(launched.complaint())
        wait_for_files([output], what)

    def end_all(self) -> None:
        """End what still runs, with all of its jobs: asked first, then killed."""
        alive = [launched.process for launched in self.running if not launched.finished()]
        for process in alive:
            _signal_group(process, signal.SIGTERM)
        deadline = time.monotonic() + END_S
        for process in alive:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal_group(process, signal.SIGKILL)
                process.wait()


def _signal_group(process: subprocess.Popen, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.killpg(process.pid, number)


def wait_any(launched: list[Launched], limit_s: float | None = None) -> None:
    """Return when one of them has ended, or after `limit_s`.

    The kernel wakes us where it can (Linux 5.3), else it is looked up often.
    """
    deadline = time.monotonic() + (math.inf if limit_s is None else limit_s)
    if any(one.finished() for one in launched):
        return
    try:
        descriptors = [os.pidfd_open(one.process.pid) for one in launched]
    except (AttributeError, OSError):
        while not any(one.finished() for one in launched) and time.monotonic() < deadline:
            time.sleep(0.02)
        return
    try:
        poll = select.poll()
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        poll.poll(None if limit_s is None else 1000 * limit_s)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def wait_for_files(paths: list[str], what: str, limit_s: float | None = None) -> None:
    """Wait for outputs that a network file system shows late, for `limit_s` (default: `patience_s`).

    Raises DataError naming those that do not come.
    """
    limit_s = patience_s() if limit_s is None else limit_s
    deadline = time.monotonic() + limit_s
    pause = 0.01
    while missing := [path for path in paths if not os.path.exists(path)]:
        if time.monotonic() > deadline:
            raise DataError(f"{what} succeeded, but {', '.join(missing)} did not appear within {limit_s:.0f} s")
        time.sleep(pause)
        pause = min(2 * pause, 1.0)
