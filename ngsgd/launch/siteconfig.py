"""How a site's cluster is asked for memory, threads, GPUs and time: a file in the form of Kaldi's queue.conf.

    command qsub -l arch=*64*            # the submitting command and what it always gets
    option mem=* -l mem_free=$0          # --mem X: these flags, with X for $0
    option mem=0                         # --mem 0: no flags; a certain value goes before *
    default gpu=0                        # as if --gpu 0 were given when it is not
    option gpu=0 -q all.q
    option gpu=* -q gpu.q -l gpu=$0

`#` begins a comment. `-` and `_` are the same in names. Flags are words with a shell's quoting, `$NAME` stands for an
environment variable, and nothing else is a shell's. An option that has no line is refused, except `max-jobs-run`,
`max-tries` and `num-threads 1`, which a launcher sees to by itself.
"""

import os
import re
import shlex

from ngsgd.errors import DataError
from ngsgd.launch.request import Request

LINE = re.compile(
    r"(?:(?P<command>command)|(?P<kind>option|default)\s+(?P<name>[^\s=]+)=(?P<value>\S+))(?:\s+(?P<flags>.*))?"
)
# A comment, or what may hold a # that begins none: words in quotes, and a character behind a backslash.
COMMENT = re.compile(r"""(?P<kept>'[^']*'|"(?:\\.|[^"\\])*"|\\.)|(?:^|(?<=\s))#.*""")


class SiteConfig:
    """command: the words of the submitting command; source: the file, for messages."""

    def __init__(self, text: str, source: str):
        """Raises DataError naming the line that is not in this form."""
        self.source = source
        self.command: list[str] = []
        self.defaults: dict[str, str] = {}
        self.flags: dict[tuple[str, str], list[str]] = {}
        for number, line in enumerate(text.splitlines(), 1):
            line = COMMENT.sub(lambda match: match["kept"] or "", line).strip()
            if line:
                self._enter(line, f"{source}:{number}")
        if not self.command:
            raise DataError(f"{source}: no line 'command ...' that says how to submit; expected e.g. 'command sbatch'")

    def _enter(self, line: str, where: str) -> None:
        match = LINE.fullmatch(line)
        try:
            words = shlex.split(os.path.expandvars(match["flags"] or "")) if match else []
        except ValueError as error:
            raise DataError(f"{where}: {error}: '{line}'") from None
        if not match or (match["command"] and not words) or (match["kind"] == "default" and words):
            raise DataError(
                f"{where}: expected 'command ...', 'option NAME=VALUE FLAGS', 'option NAME=* FLAGS' with $0 for the"
                f" value, or 'default NAME=VALUE', got '{line}'"
            )
        if match["command"]:
            self.command = words
            return
        name, value = match["name"].replace("_", "-"), match["value"]
        if match["kind"] == "default":
            self.defaults[name] = value
        elif value == "*" and words and not any("$0" in word for word in words):
            raise DataError(f"{where}: flags for any value of --{name} without $0, where the value goes: '{line}'")
        else:
            self.flags[name, value] = words

    def knows(self, name: str) -> bool:
        return any(name == known for known, _ in self.flags)

    def flags_of(self, request: Request, array: bool) -> list[str]:
        """The submitting command's flags for a request's options. Raises DataError for one that has no line.

        array: whether it is for an array of jobs; `max-jobs-run` says something only then.
        """
        given = {name: str(value) for name, value in request.options.items()} | request.site
        other = ("config", "max-tries") if array else ("config", "max-tries", "max-jobs-run")
        given = {name: value for name, value in given.items() if name not in other}
        words: list[str] = []
        for name, value in (self.defaults | given).items():
            if (name, value) in self.flags:
                words += self.flags[name, value]
            elif (name, "*") in self.flags:
                words += [word.replace("$0", value) for word in self.flags[name, "*"]]
            elif name != "max-jobs-run" and (name, value) not in (("num-threads", "1"), ("gpu", "0")):
                raise DataError(
                    f"--{name} {value}: {self.source} has no line for it; expected e.g. 'option {name}=* FLAGS' with $0"
                    f" in the flags for the value"
                )
        return words


def load(path: str | None, usual: str, default: str) -> SiteConfig:
    """The file `path` that `--config` names; without, the file `usual` if it is there, else the text `default`.

    Raises DataError when the file cannot be read or is not in the form above.
    """
    if path is None and not os.path.exists(usual):
        return SiteConfig(default, "the built-in configuration")
    path = path or usual
    try:
        with open(path, encoding="utf-8") as file:
            return SiteConfig(file.read(), path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise DataError(f"{path}: cannot be read as a cluster's configuration: {reason}") from None
