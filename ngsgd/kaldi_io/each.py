"""Going through a table: one bad utterance is named, counted and left out; most of them bad is an error."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from ngsgd.errors import DataError

log = logging.getLogger(__name__)


def for_each(items: Iterable[tuple[str, Callable[[], Any]]], work: Callable[[str, Any], None]) -> tuple[int, int]:
    """Calls work(key, load()) for each (key, load); returns (done, failed).

    An item whose load or work raises DataError is named in a warning and counted as failed.
    """
    done = failed = 0
    for key, load in items:
        try:
            work(key, load())
        except DataError as error:
            log.warning("skipped %s: %s", key, error)
            failed += 1
        else:
            done += 1
    return done, failed


def require_most(done: int, failed: int, source: str) -> None:
    """Raises DataError when nothing was done or more failed than succeeded.

    To be called before the writers close, so that then no file appears; `ngsgd.cli.finish` says the rest.
    """
    if done == 0:
        raise DataError(f"{source}: nothing done" + (f", {failed} utterances failed" if failed else ": it is empty"))
    if failed > done:
        raise DataError(f"{source}: most utterances failed, {failed} of {done + failed}; nothing written")
