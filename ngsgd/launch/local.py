"""Jobs on this machine: a number of them at once, each in its own process group.

The launcher waits in the kernel for whichever job ends next, so that nothing is polled and nothing sleeps. Interrupted,
it ends every job's whole group; killed with SIGKILL, the kernel ends the jobs (`die_with_parent`).
"""

import glob
import os
import resource
import signal
import time

from ngsgd.errors import DataError
from ngsgd.launch import logfile
from ngsgd.launch.job import STOPPING, close_log, kill_group, start
from ngsgd.launch.process import INTERRUPTED, Interrupted, raise_on_signals
from ngsgd.launch.registry import launchers
from ngsgd.launch.report import report_failures, say, say_again
from ngsgd.launch.request import Request

GRACE_S = 3.0  # between asking a job to end (SIGTERM) and making it (SIGKILL)


class _Job:
    __slots__ = ("descriptor", "devices", "group", "log", "number", "started", "tries")

    def __init__(self, number: int, log: str):
        self.number, self.log = number, log
        self.tries = 0
        self.devices: list[str] = []


def num_cores() -> int:
    """Cores that this process may use: its affinity, less where a control group allows less processor time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
    except (OSError, ValueError):  # no control groups, or the older kind: affinity it is
        return cores
    return cores if quota == "max" else max(1, min(cores, round(int(quota) / int(period))))


def visible_devices() -> list[str]:
    """The GPUs to hand out: those of CUDA_VISIBLE_DEVICES when set, else all of the machine."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name]
    return [str(i) for i in range(len(glob.glob("/dev/nvidia[0-9]*")))]


@launchers.register("local")
def launch(request: Request) -> int:
    """Run the request's jobs here, by the contract of registry.py. Raises DataError when too few GPUs are there."""
    for option in request.ignored:
        say(f"ignoring {option}: it means nothing here")
    threads = int(request.options.get("num-threads", 1))
    gpus = int(request.options.get("gpu", 0))
    devices = visible_devices() if gpus else []
    if gpus and len(devices) < gpus:
        raise DataError(
            f"each job asks for {gpus} GPU(s), this machine offers {len(devices)}; run without --gpu, or elsewhere"
        )
    limit = int(request.options.get("max-jobs-run", max(1, num_cores() // threads)))
    if gpus:
        limit = min(limit, len(devices) // gpus)
    pool = _Pool(request, limit, threads, gpus, devices)
    raise_on_signals()
    try:
        failed = pool.run()
    except Interrupted as reason:
        ended = pool.kill()
        say(f"{reason}: ended {ended} running job(s); run the same command again to redo them")
        return INTERRUPTED
    if failed:
        report_failures(request, failed)
    return 1 if failed else 0


class _Pool:
    """Up to `limit` jobs at once."""

    def __init__(self, request: Request, limit: int, threads: int, gpus: int, devices: list[str]):
        self.request, self.limit, self.threads, self.gpus, self.free = request, limit, threads, gpus, devices
        self.running: dict[int, _Job] = {}
        self.failed: dict[int, str] = {}

    def run(self) -> dict[int, str]:
        """Run all jobs; returns the failed ones: number -> how it ended."""
        waiting = [_Job(number, self.request.log_of(number)) for number in reversed(self.request.jobs)]
        tries = int(self.request.options.get("max-tries", 1))
        while waiting or self.running:
            while waiting and len(self.running) < self.limit:
                self._start(waiting.pop())
            if not self.running:
                continue  # every job just tried could not even start
            job, ended = self._reap(os.wait4(-1, 0))
            if ended and job.tries < tries:
                say_again(job.number, ended, job.tries + 1, tries)
                waiting.append(job)
            elif ended:
                self.failed[job.number] = ended
        return self.failed

    def _start(self, job: _Job) -> None:
        command = self.request.command_of(job.number)
        try:
            job.descriptor = logfile.open_log(job.log)
            os.write(job.descriptor, logfile.header(command).encode())
        except OSError as error:
            self.failed[job.number] = f"its log cannot be written: {error.strerror}"
            return
        job.devices = [self.free.pop(0) for _ in range(self.gpus)]
        job.tries += 1
        job.started = time.monotonic()
        start(command, job.descriptor, True, job.devices, self.running, job)

    def _reap(self, waited: tuple[int, int, resource.struct_rusage]) -> tuple[_Job, str]:
        """Close the log of the job that ended; returns it and how it failed ("" when it did not)."""
        pid, status, usage = waited
        job = self.running.pop(pid)
        self.free += job.devices
        try:
            ending = close_log(job.descriptor, status, usage, job.started, self.threads)
        except OSError as error:
            return job, f"its log cannot be written: {error.strerror}"
        return job, str(ending) if ending.code else ""

    def kill(self) -> int:
        """End the running jobs with all that they started; returns how many there were."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        count = len(self.running)
        self._signal_all(signal.SIGTERM)
        signal.signal(signal.SIGALRM, lambda *_: self._signal_all(signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, GRACE_S)
        groups = list(self.running)
        while self.running:
            self._reap(os.wait4(-1, 0))
        signal.setitimer(signal.ITIMER_REAL, 0)
        for group in groups:  # whatever of a job's group ignored SIGTERM and survived its leader
            kill_group(group, signal.SIGKILL)
        return count

    def _signal_all(self, number: int) -> None:
        for pid in self.running:
            kill_group(pid, number)
