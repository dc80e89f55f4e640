"""Options declared once, as dataclass fields with help text, beside the code that uses them.

The flag, its type, default and help come from the field (DESIGN: an option is declared once). `ngsgd.cli.options_from`
makes command-line options of a dataclass; `write_options` records the resolved values.
"""

import dataclasses
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

from ngsgd.errors import DataError


def opt(
    default: Any,
    help: str,
    choices: tuple[str, ...] = (),
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    short: str = "",
) -> Any:
    """A dataclass field that is also an option: default, help text (with the unit), allowed values as text, bounds.

    The bounds are for values that are given; the default may lie outside, to say that there is none.  `short`: a short
    flag such as `-f`, where Kaldi has one.
    """
    bounds = {"at least": at_least, "above": above, "at most": at_most}
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    metadata = {"help": help, "choices": choices, "bounds": bounds, "short": short}
    return dataclasses.field(default=default, metadata=metadata)


def flag_name(field_name: str) -> str:
    """`num_ceps` -> `num-ceps`."""
    return field_name.replace("_", "-")


def parse_bool(text: str, where: str) -> bool:
    """Kaldi's booleans: true, t, 1, yes / false, f, 0, no, and nothing at all for true."""
    value = text.lower()
    if value in ("true", "t", "1", "yes", ""):
        return True
    if value in ("false", "f", "0", "no"):
        return False
    raise DataError(f"{where}: expected true or false, got '{text}'")


def convert(options_class: type, name: str, text: str, where: str) -> Any:
    """The value of field `name` of `options_class` from its text form. DataError when it does not parse."""
    kind = get_type_hints(options_class)[name]
    choices = _metadata(options_class, name).get("choices")
    if choices and text not in choices:
        raise DataError(f"{where}: expected one of {', '.join(choices)}, got '{text}'")
    if kind is bool:
        return parse_bool(text, where)
    if kind is str:
        return text
    try:
        value = kind(text)
    except ValueError:
        raise DataError(f"{where}: expected {kind.__name__}, got '{text}'") from None
    return within_bounds(options_class, name, value, where)


def within_bounds(options_class: type, name: str, value: Any, where: str) -> Any:
    """The value itself. DataError when it is not a number, or outside the bounds of field `name` of `options_class`."""
    bounds = _metadata(options_class, name).get("bounds", {})
    fits = {"at least": operator.ge, "above": operator.gt, "at most": operator.le}
    if value != value or not all(fits[words](value, bound) for words, bound in bounds.items()):
        wanted = " and ".join(f"{words} {bound:g}" for words, bound in bounds.items()) or "a number"
        raise DataError(f"{where}: expected {wanted}, got {value:g}")
    return value


def _metadata(options_class: type, name: str) -> Mapping[str, Any]:
    return next((f.metadata for f in dataclasses.fields(options_class) if f.name == name), {})


def read_config(path: str) -> list[tuple[str, str, str]]:
    """Lines of a Kaldi-style configuration file: (field_name, value, "file:line"); `#` begins a comment.

    Raises DataError for an unreadable file or a line that is not `--name=value`.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"configuration file {path}: {error.strerror}") from None
    entries = []
    for number, line in enumerate(lines, 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        where = f"{path}:{number}"
        if not line.startswith("--"):
            raise DataError(f"{where}: expected --name=value, got '{line}'")
        name, _, value = line[2:].partition("=")
        entries.append((name.strip().replace("-", "_"), value.strip(), where))
    return entries


def format_options(*options: Any) -> str:
    """The resolved values in the form that `--config` reads back, one option a line."""
    lines = []
    for group in options:
        for field in dataclasses.fields(group):
            value = getattr(group, field.name)
            text = str(value).lower() if isinstance(value, bool) else str(value)
            lines.append(f"--{flag_name(field.name)}={text}\n")
    return "".join(lines)
