"""Jobs on a cluster: what its engines (Grid Engine, Slurm) have in common. An engine is a subclass of `Engine`.

The jobs of a request go to the engine as one array, whose script starts `task.py` on a node. Beside the logs' folder
stands q/LOG/, with everything about the submission; it is removed when all jobs have succeeded:

    request.json  tasks.K  script.K.sh     what to run, which jobs submission K has, what was submitted
    submitted                              ids that the engine gave, to find jobs of a launcher that was killed
    started.K.JOB  ended.K.JOB             left by the tasks
    out.K.INDEX                            what engine and task print outside the job's own log

The launcher looks for `ended` files, and now and then asks the engine for jobs that will leave none. Neither is trusted
alone: a file may appear late on a network file system, an engine may be away for a while.
"""

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from ngsgd.errors import DataError
from ngsgd.launch import siteconfig, task
from ngsgd.launch.job import STOPPING
from ngsgd.launch.logfile import tail
from ngsgd.launch.patience import patience_s
from ngsgd.launch.process import INTERRUPTED, Interrupted, raise_on_signals
from ngsgd.launch.quoting import substitute
from ngsgd.launch.report import report_failures, say, say_again
from ngsgd.launch.request import Request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
LOOK_S = (0.05, 1.0)  # pauses between looks for files, from first to longest
ASK_S = (1.0, 20.0)  # and between questions to the engine
DEATH_S = 15.0  # between a job that was killed and the engine's word on why
END_S = 20.0  # for the engine to end jobs
ANSWER_S = 120.0  # for one answer of the engine
# The environment that a job gets from the launcher's; the rest is the node's, or for the site's flags to say.
ENVIRONMENT = re.compile(
    r"PATH|PYTHON(PATH|HOME|UTF8|HASHSEED)|VIRTUAL_ENV|CONDA_\w+|LD_LIBRARY_PATH|LANG|LC_\w+|KALDI_ROOT"
    r"|(OMP|OPENBLAS|MKL|NUMBA|NGSGD)_\w+"
)
# What a node's Python runs: the package is found by its place, not by an environment.
START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from ngsgd.launch.task import main; sys.exit(main(*sys.argv[1:]))"
)
MEMORY = re.compile(r"memory limit|oom[-_ ]kill|out of memory", re.IGNORECASE)


class Unreachable(Exception):
    """The engine did not answer; its words."""


class State:
    """What the engine says of a task.

    alive  whether it still has it
    why    what it did to it; "" nothing special
    stuck  whether it has it, but will never start it
    """

    __slots__ = ("alive", "stuck", "why")

    def __init__(self, alive: bool, why: str = "", stuck: bool = False):
        self.alive, self.why, self.stuck = alive, why, stuck


class Engine:
    """A cluster's batch system.

    title      its name, for messages
    usual      where its configuration is looked for
    default    the configuration when there is none
    index      the environment variable with a task's number in an array
    own_id     a shell expression for what the engine calls the running task
    own        its flags that the launcher sets itself, ignored when given; with the number of their values
    transient  messages of the submitting command after which trying again may help
    max_array  the most tasks of one array
    """

    title = usual = default = index = own_id = ""
    own: dict[str, int] = {}
    transient = re.compile("")
    max_array = 1000

    def words(self, name: str, output: str, count: int, limit: int | None) -> list[str]:
        """Flags for a script, job name and output ("{index}" in it) of `count` tasks, at most `limit` at once."""
        raise NotImplementedError

    def id_in(self, answer: str) -> str | None:
        """The job's id in what the submitting command printed."""
        raise NotImplementedError

    def states(self, ids: list[str]) -> dict[tuple[str, int], State]:
        """States of the tasks (id, index) that the engine remembers. Raises Unreachable."""
        raise NotImplementedError

    def post_mortem(self, id: str, index: int) -> str:
        """What the engine's accounting says killed a task that `states` no longer has; "" when it says nothing."""
        raise NotImplementedError

    def cancel_words(self, ids: list[str]) -> list[str]:
        """The command that takes jobs away."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """The environment of the engine's commands: without what an engine sets for a job that we may be ourselves."""
        return {name: value for name, value in os.environ.items() if name != self.index}

    def ask(self, words: list[str], fine: tuple[int, ...] = (0,)) -> str:
        """What a command of the engine prints. Raises Unreachable when it is not there, fails or does not end."""
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=ANSWER_S,
                start_new_session=True,
                env=self.environment(),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unreachable(f"{words[0]}: {getattr(error, 'strerror', None) or 'no answer'}") from None
        if done.returncode not in fine:
            raise Unreachable(f"{words[0]}: {one_line(done.stderr or done.stdout) or f'status {done.returncode}'}")
        return done.stdout


def one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())[-500:]


def launch_on(engine: Engine, request: Request) -> int:
    """Run the request's jobs on the engine, by the contract of registry.py.

    Raises DataError for what cannot be submitted, and when another launcher is at work on the same log.
    """
    config = siteconfig.load(request.options.get("config"), engine.usual, engine.default)
    if shutil.which(config.command[0]) is None:
        raise DataError(
            f"{config.command[0]} is not on PATH: no {engine.title} here; run on a machine that submits jobs, or set"
            " cmd=run.py in local/cmd.sh"
        )
    folder = _folder(request)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    raise_on_signals()
    with _lock(f"{folder}.lock", request.log):
        work = _Work(engine, request, config, folder)
        try:
            work.clear_earlier()
            failed = work.run()
        except Interrupted as reason:
            signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
            said, _ = work.cancel()
            say(f"{reason}: {said}; run the same command again to redo what is missing")
            return INTERRUPTED
        except BaseException:
            work.cancel()
            raise
        if failed:
            report_failures(request, failed)
            return 1
        shutil.rmtree(folder)
        return 0


def _folder(request: Request) -> str:
    """q/LOG beside the log's folder, without the job's number."""
    parts = request.log.split("/")
    plain = 0
    while plain < len(parts) - 1 and substitute(parts[plain], request.job_name, 0) == parts[plain]:
        plain += 1
    name = "+".join(substitute(part, request.job_name, 0) for part in parts[plain:])
    above = parts[:plain]
    if above and above[-1] in ("log", "LOG"):
        above = above[:-1]
    return os.path.abspath(os.path.join("/".join(above) or ("/" if request.log.startswith("/") else "."), "q", name))


@contextlib.contextmanager
def _lock(path: str, log: str) -> Iterator[None]:
    """Hold `path` while a launcher works on `log`. Raises DataError when another one does."""
    busy = f"another launcher is at work on {log}; wait for it, or use another log"
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(busy) from None
        except OSError as error:  # a file system without locks
            say(f"{path}: {error.strerror}: going on without a lock")
        if not os.path.exists(path) or not os.path.samestat(os.stat(path), os.fstat(file.fileno())):
            raise DataError(busy)  # the one before has just removed it, and a third may hold a new one
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


class _Task:
    """One job of a submission.

    text       how it ended by its own word ("" none yet), and `code`
    dead_since when the engine was first seen to be through with it; `why` and `stuck` as in State
    """

    __slots__ = ("code", "dead_since", "ended", "id", "index", "job", "name", "stuck", "text", "why")

    def __init__(self, id: str, index: int, job: int, name: str):
        self.id, self.index, self.job, self.name = id, index, job, name
        self.code, self.text, self.why = 0, "", ""
        self.stuck = False
        self.dead_since: float | None = None
        self.ended: float | None = None


class _Work:
    """The jobs of one request, from submission to the last ending."""

    def __init__(self, engine: Engine, request: Request, config: siteconfig.SiteConfig, folder: str):
        self.engine, self.request, self.config, self.folder = engine, request, config, folder
        self.patience = patience_s()
        self.flags = self._flags()
        self.tries = int(request.options.get("max-tries", 1))
        self.tried = dict.fromkeys(request.jobs, 0)
        self.submissions = 0
        self.ids: list[str] = []
        self.tasks: list[_Task] = []
        self.failed: dict[int, str] = {}
        self.silent = False
        self.stuck = False

    def _flags(self) -> list[str]:
        words = []
        for flag in self.request.flags:
            if flag[0] in self.engine.own:
                say(f"ignoring {' '.join(flag)}: this launcher sees to it")
            else:
                words += flag
        return words

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def clear_earlier(self) -> None:
        """Take away the jobs of a launcher that was killed, so that none works beside ours, and its folder.

        Raises DataError when that cannot be done.
        """
        try:
            with open(self._path("submitted")) as file:
                self.ids = file.read().split()
        except FileNotFoundError:
            pass
        if self.ids and self._living() != []:
            said, done = self.cancel()
            if not done:
                raise DataError(f"an earlier launcher was killed, and its jobs may still be at work: {said}")
            say(f"an earlier launcher was killed: {said}")
        self.ids = []
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.folder)
        os.makedirs(self.folder)

    def run(self) -> dict[int, str]:
        """Submit all jobs and wait for them; returns the failed ones: number -> how it ended."""
        task.write_request(self.folder, self.request)
        self._submit(list(self.request.jobs))
        look, ask = LOOK_S[0], ASK_S[0]
        asked = time.monotonic()
        while self.tasks:
            if self._collect():
                look = LOOK_S[0]
            settling = any(one.ended or one.dead_since for one in self.tasks)
            if self.tasks and time.monotonic() - asked > (LOOK_S[1] if settling else ask):
                self._ask()
                asked, ask = time.monotonic(), min(1.5 * ask, ASK_S[1])
            again = self._settle()
            if again:
                self._submit(again)
                ask = ASK_S[0]
            if self.tasks:
                time.sleep(look)
                look = min(1.2 * look, LOOK_S[1])
        if self.stuck:
            self.cancel()
        os.unlink(self._path("submitted"))
        return self.failed

    def _submit(self, jobs: list[int]) -> None:
        """Submit jobs, in arrays of what the engine takes. The limit on running jobs holds for each array."""
        for begin in range(0, len(jobs), self.engine.max_array):
            part = jobs[begin : begin + self.engine.max_array]
            self.submissions += 1
            number = self.submissions
            task.write_whole(self._path(f"tasks.{number}"), " ".join(map(str, part)))
            for job in part:
                self.tried[job] += 1
                with contextlib.suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                    os.unlink(self.request.log_of(job))  # what an earlier run said is not this one's last word
            limit = self.request.options.get("max-jobs-run")
            if self.config.knows("max-jobs-run"):
                limit = None
            words = [
                *self.config.command,
                *self.config.flags_of(self.request, len(part) > 1),
                *self.flags,
                *self.engine.words(self._job_name(), self._path(f"out.{number}.{{index}}"), len(part), limit),
                self._path(f"script.{number}.sh"),
            ]
            task.write_whole(words[-1], self._script(number, len(part) > 1, words))
            id = self._submitted(words)
            self.tasks += [_Task(id, index, job, f"{number}.{job}") for index, job in enumerate(part, 1)]

    def _job_name(self) -> str:
        """A job name that every engine takes, from the log's."""
        return "j." + re.sub(r"[^A-Za-z0-9_.-]+", "_", os.path.basename(self.folder)).removesuffix(".log")

    def _script(self, number: int, array: bool, words: list[str]) -> str:
        environment = [
            f"export {name}={shlex.quote(value)}\n"
            for name, value in sorted(os.environ.items())
            if ENVIRONMENT.fullmatch(name)
        ]
        index = f'"${self.engine.index}"' if array else "1"
        return (
            f"#!/bin/bash\n# Submitted with: {shlex.join(words)}\n{''.join(environment)}"
            f"cd {shlex.quote(os.getcwd())} || exit 1\n"
            f"exec {shlex.quote(sys.executable)} -IS -X utf8 -c {shlex.quote(START)} {shlex.quote(ROOT)}"
            f' {shlex.quote(self.folder)} {number} {index} "{self.engine.own_id}"\n'
        )

    def _submitted(self, words: list[str]) -> str:
        """Submit; tried again while the engine is away. Returns the id. Raises DataError with the engine's words."""
        deadline = time.monotonic() + self.patience
        pause = 1.0
        while True:
            id, answer = self._submit_once(words)
            if id:
                return id
            if not self.engine.transient.search(answer):
                raise DataError(f"{self.engine.title} refused the jobs: {answer}; submitted with: {shlex.join(words)}")
            if time.monotonic() + pause > deadline:
                raise DataError(
                    f"{self.engine.title} took no jobs for {self.patience:.0f} s: {answer}; try again when it is up"
                )
            say(f"{self.engine.title} takes no jobs: {answer}; trying again in {pause:.0f} s")
            time.sleep(pause)
            pause = min(2 * pause, 30.0)

    def _submit_once(self, words: list[str]) -> tuple[str | None, str]:
        """Submit; the id, or None and the answer. A signal meanwhile is obeyed when the id is known."""
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            try:
                done = subprocess.run(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    timeout=ANSWER_S,
                    start_new_session=True,
                    preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, blocked),
                    env=self.engine.environment(),
                )
            except subprocess.TimeoutExpired:
                return None, f"{words[0]}: timed out"
            id = self.engine.id_in(done.stdout) if done.returncode == 0 else None
            if id:
                self.ids.append(id)
                task.write_whole(self._path("submitted"), "".join(f"{id}\n" for id in self.ids))
            return id, one_line(done.stdout) or f"{words[0]}: status {done.returncode}"
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _collect(self) -> bool:
        """Read the endings that have appeared; whether there were any."""
        names = set(os.listdir(self.folder))
        found = False
        for one in self.tasks:
            if one.ended is None and f"ended.{one.name}" in names:
                with open(self._path(f"ended.{one.name}"), encoding="utf-8", errors="surrogateescape") as file:
                    code, _, one.text = file.read().split(" ", 2)
                one.code, one.ended, found = int(code), time.monotonic(), True
        return found

    def _ask(self) -> None:
        """Note which tasks the engine is through with."""
        try:
            states = self.engine.states(sorted({one.id for one in self.tasks}, key=self.ids.index))
        except Unreachable as error:
            if not self.silent:
                say(f"{self.engine.title} does not answer ({error}); waiting for the jobs meanwhile")
            self.silent = True
            return
        if self.silent:
            say(f"{self.engine.title} answers again")
        self.silent = False
        for one in self.tasks:
            state = states.get((one.id, one.index))
            if state is not None and state.alive:
                continue
            if one.dead_since is None:
                one.dead_since = time.monotonic()
            if state is not None:
                one.why, one.stuck = state.why, state.stuck
            elif not one.why and (one.ended is None or one.code > 128):
                one.why = self.engine.post_mortem(one.id, one.index)  # again and again: accounts are written late

    def _settle(self) -> list[int]:
        """Take out the tasks whose end is certain; returns the jobs to try again."""
        now = time.monotonic()
        left, again = [], []
        for one in self.tasks:
            failure = self._failure(one, now)
            if failure is None:
                left.append(one)
            elif failure and self.tried[one.job] < self.tries:
                say_again(one.job, failure, self.tried[one.job] + 1, self.tries)
                again.append(one.job)
            elif failure:
                self.failed[one.job] = failure
        self.tasks = left
        return again

    def _failure(self, one: _Task, now: float) -> str | None:
        """How a task failed ("" not at all); None while that is not certain."""
        if one.ended is not None:
            if one.code <= 128:
                return one.text if one.code else ""
            if one.dead_since is None and now - one.ended < DEATH_S:
                return None  # who killed it?
            reason = one.why or self._memory(one)
            return f"killed by {self.engine.title}: {reason}" if reason else one.text
        if one.dead_since is None:
            return None
        if one.stuck:
            self.stuck = True
            return one.why
        if one.why:
            # It may have been ending when that came: give its last word a moment to appear.
            return (
                None if now - one.dead_since < 2 else f"killed by {self.engine.title}: {self._memory(one) or one.why}"
            )
        if now - one.dead_since < self.patience:
            return None
        output = self._path(f"out.{one.name.split('.')[0]}.{one.index}")
        last = one_line("\n".join(tail(output)[-2:]))
        return f"gone from {self.engine.title}, and its result did not appear within {self.patience:.0f} s" + (
            f"; {self.engine.title} says: {last}" if last else ""
        )

    def _memory(self, one: _Task) -> str:
        """Where the engine tells only in the task's output that it took too much memory."""
        words = "\n".join(tail(self._path(f"out.{one.name.split('.')[0]}.{one.index}")))
        return "memory limit exceeded" if MEMORY.search(words) else ""

    def _living(self) -> list[str] | None:
        """Ids of our jobs that the engine still has; None when it does not answer."""
        try:
            states = self.engine.states(self.ids)
        except Unreachable:
            return None
        return sorted({id for (id, _), state in states.items() if state.alive or state.stuck}, key=self.ids.index)

    def cancel(self) -> tuple[str, bool]:
        """Take every submitted job away and wait until they are; what came of it, in words and whether all are gone."""
        if not self.ids:
            return "nothing was submitted yet", True
        words = self.engine.cancel_words(self.ids)
        deadline = time.monotonic() + END_S
        pause = LOOK_S[0]
        with contextlib.suppress(Unreachable):
            self.engine.ask(words, fine=tuple(range(256)))
        while (living := self._living()) != []:
            if time.monotonic() > deadline:
                names, later = ", ".join(living or self.ids), shlex.join(words)
                return f"{self.engine.title} has not ended job(s) {names} within {END_S:.0f} s; later: {later}", False
            time.sleep(pause)
            pause = min(2 * pause, LOOK_S[1])
        return f"took job(s) {', '.join(self.ids)} away from {self.engine.title}", True
