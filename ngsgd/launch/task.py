"""A cluster's node: one task of a submission, started by the script that `cluster.py` submits.

The task finds everything in the submission's folder: `request.json` (what to run) and `tasks.K` (which jobs the array
of submission K stands for). It leaves there `started.K.JOB` before the job and `ended.K.JOB` after it, the latter whole
or absent, with one line "CODE HOST WORDS". Standard library only: it runs with `python -IS`.
"""

import json
import os
import resource
import signal
import time

from ngsgd.launch import logfile
from ngsgd.launch.job import Ending, close_log, start
from ngsgd.launch.request import Request

REQUEST = "request.json"


def write_request(folder: str, request: Request) -> None:
    options = {"num-threads": request.options.get("num-threads", 1), "gpu": request.options.get("gpu", 0)}
    fields = (request.log, request.words, request.job_name, request.first, request.last, options)
    write_whole(os.path.join(folder, REQUEST), json.dumps(fields))


def read_request(folder: str) -> Request:
    with open(os.path.join(folder, REQUEST), encoding="utf-8", errors="surrogateescape") as file:
        log, words, job_name, first, last, options = json.load(file)
    request = Request(log, words, job_name, first, last)
    request.options = options
    return request


def write_whole(path: str, text: str) -> None:
    """Write a file that another machine waits for: it is seen whole or not at all."""
    with open(f"{path}.new", "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.new", path)


def main(folder: str, submission: str, index: str, engine_id: str) -> int:
    """Run task number `index` (from 1) of a submission; returns its exit status.

    engine_id: what the engine calls the task. A second copy under another id does nothing (a submission that the engine
    took although it said no); one under the same id was requeued, and runs.
    """
    try:
        with open(os.path.join(folder, f"tasks.{submission}")) as file:
            job = int(file.read().split()[int(index) - 1])
        request = read_request(folder)
    except FileNotFoundError as error:
        print(f"{error.filename} is not there (the launcher has ended since): nothing done")
        return 0
    name = f"{submission}.{job}"
    if not _is_first(os.path.join(folder, f"started.{name}"), engine_id):
        print(f"job {job} runs or ran under another id: nothing done")
        return 0
    code, text = _run(request, job)
    write_whole(os.path.join(folder, f"ended.{name}"), f"{code} {os.uname().nodename} {text}")
    return min(code, 1)  # some engines take certain statuses for orders


def _is_first(path: str, engine_id: str) -> bool:
    try:
        with open(path, "x") as file:
            file.write(engine_id)
        return True
    except FileExistsError:
        with open(path) as file:
            return file.read() == engine_id


def _run(request: Request, job: int) -> tuple[int, str]:
    """The job's exit code, and what to say of it."""
    command = request.command_of(job)
    if request.options["gpu"] and os.environ.get("CUDA_VISIBLE_DEVICES") == "NoDevFiles":
        return 1, "the cluster gave it no GPU: CUDA_VISIBLE_DEVICES=NoDevFiles"
    try:
        descriptor = logfile.open_log(request.log_of(job))
        os.write(descriptor, logfile.header(command).encode(errors="surrogateescape"))
    except OSError as error:
        return 1, f"its log cannot be written: {error.strerror}"
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    _pass_signals_on()
    started = time.monotonic()
    # The job stays in this process group: engines signal groups, and nothing of it may escape them.
    start(command, descriptor, False, [], {}, None)
    status, usage = _wait()
    try:
        ending: Ending = close_log(descriptor, status, usage, started, request.options["num-threads"])
    except OSError as error:
        return 1, f"its log cannot be written: {error.strerror}"
    return ending.code, str(ending)


def _wait() -> tuple[int, resource.struct_rusage]:
    _, status, usage = os.wait4(-1, 0)
    return status, usage


def _pass_signals_on() -> None:
    """What asks this task to end (time is up, qdel, scancel) asks the whole job, and this task lives to say so."""

    def pass_on(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
        signal.signal(number, pass_on)
