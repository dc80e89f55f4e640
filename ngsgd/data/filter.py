"""Filtering and mapping the lines of any file by what stands in its fields."""

from dataclasses import dataclass

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.kaldi_io.lists import read_map
from ngsgd.lang.symbols import FieldRange, fields_of, map_lines, text_lines
from ngsgd.options import opt


@dataclass
class FilterOptions:
    """Options of `filter_scp.py`."""

    exclude: bool = opt(False, "keep the lines whose id is not in the list")
    field: int = opt(1, "field of a line that is the id, from 1", at_least=1, short="-f")


def filter_file(ids: str, source: str, target: str, options: FilterOptions) -> tuple[int, int]:
    """Write the lines of `source` whose id is in the first column of `ids`; returns (kept, all).

    Raises DataError for a line with too few fields.
    """
    wanted = {fields[0] for _, line in text_lines(ids) if (fields := fields_of(line))}
    kept = seen = 0
    with open_text_writer(target) as out:
        for number, line in text_lines(source):
            seen += 1
            fields = fields_of(line)
            if len(fields) < options.field:
                raise DataError(f"{source}:{number}: expected at least {options.field} fields, found {len(fields)}")
            if (fields[options.field - 1] in wanted) != options.exclude:
                kept += 1
                out.write(line + "\n")
    return kept, seen


@dataclass
class MapOptions:
    """Options of `apply_map.py`."""

    fields: str = opt("all", "fields to map, counted from 1: N, N-M, N- or all", short="-f")
    permissive: bool = opt(False, "leave what is not in the map as it is, instead of failing")


def map_file(mapping: str, source: str, target: str, options: MapOptions) -> int:
    """Write the lines of `source` with their fields replaced by what `mapping` has behind them, perhaps nothing.

    Returns the number of lines. Raises DataError, with file and line, for a field that is not in the map.
    """
    values = read_map(mapping)

    def mapped(field: str) -> str:
        if field not in values and not options.permissive:
            raise DataError(f"'{field}' is not in {mapping}")
        return values.get(field, field)

    done = 0
    with open_text_writer(target) as out:
        for line in map_lines(text_lines(source), FieldRange(options.fields), mapped, source):
            out.write(" ".join(fields_of(line)) + "\n")
            done += 1
    return done
