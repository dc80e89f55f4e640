"""One job as a process: `bash -c COMMAND` writing to its log, and how it ended. For the local launcher and for a
cluster's node alike."""

import contextlib
import os
import resource
import signal
import time

from ngsgd.launch import logfile
from ngsgd.launch.process import die_with_parent

STOPPING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


class Ending:
    """How a job ended: `code` as a shell gives it (128 + signal), `signal_number` (0: none), `elapsed_s`."""

    __slots__ = ("code", "elapsed_s", "signal_number")

    def __init__(self, code: int, signal_number: int, elapsed_s: float):
        self.code, self.signal_number, self.elapsed_s = code, signal_number, elapsed_s

    def __str__(self) -> str:
        killed = f", killed by {_signal_name(self.signal_number or self.code - 128)}" if self.code > 128 else ""
        return f"code {self.code}{killed}"


def start(command: str, descriptor: int, own_group: bool, devices: list[str], started: dict, job: object) -> None:
    """Fork the job and enter it as `started[pid] = job`.

    descriptor  of the log, which gets both outputs
    own_group   whether it leads a process group of its own, to be signalled with all that it starts
    devices     GPUs that it may see; none: what the environment says
    """
    parent = os.getpid()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:  # no signal may come between the fork and the note of it
        pid = os.fork()
        if pid == 0:
            _become(command, descriptor, own_group, devices, parent, blocked)
        started[pid] = job
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _become(
    command: str, descriptor: int, own_group: bool, devices: list[str], parent: int, mask: set[signal.Signals]
) -> None:
    """In the child: become bash. Does not return."""
    try:
        if own_group:
            os.setsid()
        die_with_parent(parent)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if devices:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
        os.execvp("bash", ["bash", "-o", "pipefail", "-c", command])
    except OSError as error:
        os.write(2, f"cannot start bash: {error}\n".encode())
    finally:
        os._exit(127)


def close_log(descriptor: int, status: int, usage: resource.struct_rusage, started: float, threads: int) -> Ending:
    """Write accounting and footer into the log of a job that was waited for, and close it.

    status, usage  as os.wait4 gives them;  started  its time.monotonic()
    Raises OSError when they cannot be written (a full disk: the job's output may be cut off as well).
    """
    code = os.waitstatus_to_exitcode(status)
    number = max(0, -code)
    ending = Ending(128 + number if number else code, number, time.monotonic() - started)
    cpu_s, max_rss_mb = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    try:
        os.write(
            descriptor,
            logfile.footer(ending.code, number, ending.elapsed_s, threads, cpu_s, max_rss_mb).encode(),
        )
    finally:
        os.close(descriptor)
    return ending


def kill_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended by itself
        os.killpg(group, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
