"""How long to wait for what should be there: files on a network file system, a scheduler that does not take jobs."""

import os

from ngsgd.errors import DataError

VARIABLE = "NGSGD_PATIENCE_S"
PATIENCE_S = 60.0


def patience_s() -> float:
    """Seconds, by the environment variable NGSGD_PATIENCE_S. Raises DataError when that is no positive number."""
    text = os.environ.get(VARIABLE, str(PATIENCE_S))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds > 0:
        raise DataError(f"{VARIABLE}: expected a positive number of seconds, got '{text}'")
    return seconds
