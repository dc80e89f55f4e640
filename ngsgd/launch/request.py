"""What a launcher is asked to do: the command line `[options] [JOB=1:N] LOG COMMAND...` taken apart.

The form is that of Kaldi's launchers, so that they and ours stand in for each other. Options and `JOB=1:N` may come in
either order. No heavy import here: a launcher starts for every step of a recipe.
"""

import os
import re

from ngsgd.launch.quoting import shell_command, substitute

JOB_RANGE = re.compile(r"([A-Za-z_]\w*)=(\d+)(?::(\d+))?")
# Options with one value that every launcher understands; None: a text for the launcher to interpret.
PORTABLE = dict.fromkeys(("max-jobs-run", "num-threads", "gpu", "max-tries"), int)
PORTABLE |= dict.fromkeys(("mem", "time", "config"))
ENGINES = {"-tc": "max-jobs-run"}  # a portable option in the engines' own form
BARE = ("-V", "-cwd", "-notify")  # the engines' flags that take no value


class UsageError(Exception):
    """A command line that cannot be meant; exit status 2."""


class Request:
    """Jobs `first`..`last` of one command.

    job_name  the word that stands for the job's number ("JOB"), None for a single unnumbered job
    log       log file, with the job's name in it when there are several jobs
    words     the command's arguments as they came
    options   values of the portable options that were given
    site      values of other options, `--name value`, by name: for a cluster's configuration to know
    flags     the engines' own flags (`-q all.q`, `-pe smp 4`), each with its values, as they came
    """

    __slots__ = ("first", "flags", "job_name", "last", "log", "options", "site", "words")

    def __init__(self, log: str, words: list[str], job_name: str | None = None, first: int = 1, last: int = 1):
        self.log, self.words, self.job_name, self.first, self.last = log, words, job_name, first, last
        self.options: dict[str, object] = {}
        self.site: dict[str, str] = {}
        self.flags: list[list[str]] = []

    @property
    def jobs(self) -> range:
        return range(self.first, self.last + 1)

    @property
    def ignored(self) -> list[str]:
        """What only a cluster understands."""
        return [f"--{name} {value}" for name, value in self.site.items()] + [" ".join(flag) for flag in self.flags]

    def log_of(self, job: int) -> str:
        return substitute(self.log, self.job_name, job)

    def command_of(self, job: int) -> str:
        """The shell command of job `job`, every word quoted so that it arrives as written."""
        return shell_command([substitute(word, self.job_name, job) for word in self.words])


def parse(args: list[str]) -> Request:
    """A Request from a launcher's arguments. Raises UsageError naming the argument and what was expected."""
    args = list(args)
    request = Request("", [])
    job_name, first, last = None, 1, 1
    while args:
        match = JOB_RANGE.fullmatch(args[0])
        if args[0].startswith("-"):
            _take_option(args, request)
        elif match and job_name is None:
            args.pop(0)
            job_name, first = match[1], int(match[2])
            last = int(match[3] or first)
            if not 1 <= first <= last:
                raise UsageError(f"{match[0]}: expected JOB=FIRST:LAST with 1 <= FIRST <= LAST")
        elif re.match(r"\w+=", args[0]):
            raise UsageError(f"'{args[0]}' is not a job range; expected JOB=FIRST:LAST in numbers, once")
        else:
            break
    if len(args) < 2:
        raise UsageError("expected a log file and a command after the options")
    request.log, request.words = args[0], args[1:]
    request.job_name, request.first, request.last = job_name, first, last
    _refuse_ambiguous(request)
    return request


def _take_option(args: list[str], request: Request) -> None:
    """Move one option with its value from the front of `args` into the request."""
    switch, equals, value = args.pop(0).partition("=")
    if switch in BARE:
        request.flags.append([switch])
        return
    values = [value] if equals else [args.pop(0) for _ in range(2 if switch == "-pe" else 1) if args]
    if not values:
        raise UsageError(f"{switch}: expected a value")
    name = ENGINES.get(switch, switch[2:].replace("_", "-") if switch.startswith("--") else "")
    if not name:
        request.flags.append([switch, *values])
    elif name not in PORTABLE:
        request.site[name] = values[0]
    elif PORTABLE[name] is int:
        if not values[0].isdigit() or (name != "gpu" and int(values[0]) == 0):
            raise UsageError(f"{switch}: expected a positive number, got '{values[0]}'")
        number = int(values[0])
        # Given twice (a default in --cmd and a step's own limit): the stricter one, as Kaldi's launchers do.
        stricter = name == "max-jobs-run" and name in request.options
        request.options[name] = min(number, request.options[name]) if stricter else number
    else:
        request.options[name] = values[0]


def _refuse_ambiguous(request: Request) -> None:
    """Raise UsageError where putting a number for the job's name cannot be what was meant."""
    name = request.job_name or "JOB"
    if request.job_name is None:
        if substitute(request.log, name, 0) != request.log:
            raise UsageError(f"the log {request.log} has {name} in its name, but no {name}=1:N was given")
        return
    if len(request.jobs) > 1 and substitute(request.log, name, 0) == request.log:
        raise UsageError(
            f"{len(request.jobs)} jobs would write one log file, {request.log}; put {name} into its name as a word"
        )
    for word in [request.log, *request.words]:
        for path in re.findall(r"[^\s:,=|<>\"'`;&()]+", word):
            folders = path.split("/")
            for end in range(1, len(folders)):
                folder = "/".join(folders[:end])
                if substitute(folders[end - 1], name, 0) != folders[end - 1] and os.path.isdir(folder):
                    raise UsageError(
                        f"{path}: the folder {folder} has that very name, and replacing {name} by a number would "
                        f"change the path; rename it or use another word, e.g. TASK={request.first}:{request.last}"
                    )
