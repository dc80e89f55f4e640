"""Every bit of command-line plumbing: how a program parses, reports, and exits.

A program is one page::

    @cli.program(__doc__)
    @cli.options_from(AverageOptions)
    @cli.argument("models", nargs=-1, required=True)
    def main(average, models):
        ...

Exit statuses: 0 done; 1 bad data or nothing done (one line on stderr, no traceback); 2 usage; 130 interrupted.
Options are Kaldi's in form: `--name=value` or `--name value`, `_` equal to `-`, a bare boolean means true, and
`--config=FILE` reads such lines. Precedence: default, configuration file, command line. Every program has
`--config` and `--no-pipes`.
"""

import dataclasses
import functools
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, get_type_hints

import click

from ngsgd.errors import DataError
from ngsgd.options import convert, flag_name, opt, read_config, within_bounds

# The parallelism is in the jobs. Said before numpy is loaded: it comes with several pools of threads that wait for work
# by spinning, and training with two of them was five times slower than without (RESULTS.md).
os.environ.setdefault("OMP_NUM_THREADS", "1")

__all__ = ["DataError", "argument", "finish", "options_from", "program"]

log = logging.getLogger(__name__)
argument = click.argument


@dataclasses.dataclass
class CommonOptions:
    """What every program can be told."""

    no_pipes: bool = opt(False, "refuse to run commands in place of files ('COMMAND |'), for data of strangers")


class _KaldiFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        level = {"INFO": "LOG"}.get(record.levelname, record.levelname)
        return f"{level} ({program_name()}) {record.getMessage()}"


class _Command(click.Command):
    """A click command with Kaldi's option habits."""

    def __init__(self, *args: Any, doc: str = "", **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.doc = doc

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        booleans = {p.opts[0] for p in self.params if getattr(p, "kaldi_bool", False)}
        return super().parse_args(ctx, _normalised(args, booleans))

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(self.doc.strip() + "\n\n")
        self.format_options(ctx, formatter)

    def get_usage(self, ctx: click.Context) -> str:
        lines = [line for line in self.doc.splitlines() if line.strip().lower().startswith("usage:")]
        return lines[0].strip() if lines else super().get_usage(ctx)


class _ClosedStdout(Exception):
    """The consumer of our standard output closed it."""


class _Option(click.Option):
    kaldi_bool = False


def _normalised(args: list[str], booleans: set[str]) -> list[str]:
    """Kaldi's habits in click's form: `_` is `-` in names; a boolean is `--x`, `--x=false` or `--x false`."""
    made: list[str] = []
    left = list(args)
    while left:
        arg = left.pop(0)
        if arg == "--":
            return [*made, arg, *left]
        name, equals, value = arg.partition("=")
        if arg.startswith("--"):
            name = name.replace("_", "-")
        if name in booleans and not equals:
            equals, value = "=", left.pop(0) if left and left[0] in ("true", "false") else "true"
        made.append(f"{name}{equals}{value}")
    return made


def program_name() -> str:
    """The name that the program was called by."""
    return os.path.basename(sys.argv[0])


def program(doc: str) -> Callable:
    """Outermost decorator of a program's `main`: builds the command and owns logging and exit statuses.

    `doc` is the program's docstring: what it does, `Usage:`, `e.g.:`; it is printed by `--help`.
    """

    def decorate(function: Callable) -> Callable:
        if not any(p.name == "no_pipes" for p in getattr(function, "__click_params__", [])):
            function = options_from()(function)
        params = [*function.__click_params__][::-1]

        @functools.wraps(function)
        def callback(*args: Any, **kwargs: Any) -> None:
            try:
                function(*args, **kwargs)
            except (_ClosedStdout, BrokenPipeError):
                raise _ClosedStdout from None  # click would end the program itself

        command = _Command(
            name=program_name(),
            callback=callback,
            params=params,
            doc=doc,
            context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 120},
        )

        @functools.wraps(function)
        def main(args: list[str] | None = None) -> None:
            sys.exit(_run(command, sys.argv[1:] if args is None else list(args)))

        main.command = command
        return main

    return decorate


def _run(command: click.Command, args: list[str]) -> int:
    handler = logging.StreamHandler()
    handler.setFormatter(_KaldiFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    try:
        command.main(args=args, prog_name=program_name(), standalone_mode=False)
        sys.stdout.flush()
        return 0
    except click.UsageError as error:
        error.show()
        return 2
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except DataError as error:
        log.error("%s", error)
        return 1
    except (_ClosedStdout, BrokenPipeError):
        # The consumer of our stdout closed early (`| head`): no error of ours; keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        log.error("%s: %s", error.filename or "input or output", error.strerror or error)
        return 1


def options_from(*options_classes: type) -> Callable:
    """Command-line options from the fields of dataclasses; the function gets one instance of each.

    The keyword is the class's name in snake case without `Options`: `MfccOptions` -> `mfcc`. Those of `CommonOptions`
    come with them and take effect here.
    """
    all_classes = (*options_classes, CommonOptions)

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def with_options(*args: Any, **kwargs: Any) -> Any:
            given = {f.name: kwargs.pop(f.name) for c in all_classes for f in dataclasses.fields(c)}
            *resolved, common = _resolve(all_classes, kwargs.pop("options_file_"), given)
            for options_class, values in zip(options_classes, resolved, strict=True):
                kwargs[_keyword(options_class)] = options_class(**values)
            if CommonOptions(**common).no_pipes:
                from ngsgd.kaldi_io.files import refuse_pipes

                refuse_pipes()
            return function(*args, **kwargs)

        params = [*getattr(function, "__click_params__", [])]
        config_option = _Option(
            ["--config", "options_file_"], default=None, metavar="FILE", help="Read options from this file."
        )
        added = [option for c in all_classes for option in _click_options(c)] + [config_option]
        with_options.__click_params__ = params + added[::-1]
        return with_options

    return decorate


def _keyword(options_class: type) -> str:
    name = options_class.__name__.removesuffix("Options")
    return "".join("_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(name))


def _click_options(options_class: type) -> list[click.Option]:
    hints = get_type_hints(options_class)
    made = []
    for field in dataclasses.fields(options_class):
        kind = hints[field.name]
        default = str(field.default).lower() if kind is bool else field.default
        shown = f"{field.metadata.get('help', '')} (default: {default if default != '' else 'none'})"
        choices = field.metadata.get("choices")
        short = field.metadata.get("short")
        option = _Option(
            [f"--{flag_name(field.name)}", *([short] if short else []), field.name],
            default=None,
            type=click.Choice(choices) if choices else (str if kind is bool else kind),
            metavar={bool: "true|false", int: "INT", float: "FLOAT"}.get(kind) if not choices else None,
            help=shown,
        )
        option.kaldi_bool = kind is bool
        made.append(option)
    return made


def _resolve(options_classes: tuple[type, ...], config: str | None, given: dict[str, Any]) -> list[dict[str, Any]]:
    """Field values given in the configuration file, overridden by those on the command line."""
    owner = {field.name: c for c in options_classes for field in dataclasses.fields(c)}
    values: list[dict[str, Any]] = [{} for _ in options_classes]
    for name, text, where in read_config(config) if config else []:
        if name not in owner:
            known = ", ".join(flag_name(n) for n in owner)
            raise DataError(f"{where}: unknown option --{flag_name(name)}; known: {known}")
        values[options_classes.index(owner[name])][name] = convert(owner[name], name, text, where)
    for name, value in given.items():
        if value is None:
            continue
        check = convert if isinstance(value, str) else within_bounds
        try:
            value = check(owner[name], name, value, f"--{flag_name(name)}")
        except DataError as error:
            raise click.UsageError(str(error)) from None
        values[options_classes.index(owner[name])][name] = value
    return values


def finish(done: int, failed: int = 0, what: str = "utterances") -> None:
    """Tally. Raises DataError when nothing was done or when more failed than succeeded."""
    if done == 0:
        raise DataError(f"no {what} done" + (f", {failed} failed" if failed else ": the input is empty"))
    log.info("done %d %s, failed %d", done, what, failed)
    if failed > done:
        raise DataError(f"most {what} failed: {failed} of {done + failed}")
