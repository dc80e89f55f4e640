"""The word error rates of several decodings side by side."""

import json
from collections.abc import Sequence
from pathlib import Path

from ngsgd.errors import DataError

HEADER = ("decoding", "WER %", "95 % interval", "errors / words", "best of grid", "below the first")


def load_result(directory: str) -> dict:
    """The figures that score-wer left in DECODE/scoring. Raises DataError when there are none."""
    path = Path(directory) / "scoring" / "wer.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        raise DataError(f"{path}: no figures of score-wer there; was {directory} decoded and scored?") from None


def results_table(directories: Sequence[str]) -> str:
    """Lines of aligned columns; the last is the relative reduction of the fixed-weight rate to that of the first."""
    rows = [HEADER]
    first = None
    for directory in directories:
        result = load_result(directory)
        fixed, best = result.get("fixed", result["best"]), result["best"]
        rate = fixed["wer_percent"]
        if first is None:
            first, below = rate, ""
        else:
            below = f"{100 * (first - rate) / first:.1f} %" if first else ""
        low, high = fixed["interval_percent"]
        errors = fixed["insertions"] + fixed["deletions"] + fixed["substitutions"]
        rows.append(
            (
                directory,
                f"{rate:.2f}",
                f"{low:.2f} .. {high:.2f}",
                f"{errors} / {fixed['words']}",
                f"{best['wer_percent']:.2f}",
                below,
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    return "".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() + "\n" for row in rows)
