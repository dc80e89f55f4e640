"""Going through a table of features: one bad utterance is named, counted and left out."""

import functools
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ngsgd.errors import DataError
from ngsgd.kaldi_io.lists import read_map
from ngsgd.kaldi_io.stream import open_reader
from ngsgd.kaldi_io.tables import RandomReader, SequentialReader, Writer

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


def check_features(features: np.ndarray) -> np.ndarray:
    """The features themselves. Raises DataError when there are none, or NaN or infinite values among them."""
    if features.ndim != 2 or not features.size:
        raise DataError(f"no features: an empty matrix, {' x '.join(map(str, features.shape))}")
    if not np.isfinite(features.sum(dtype=np.float64)):
        frame, column = np.argwhere(~np.isfinite(features))[0]
        raise DataError(f"{features[frame, column]} at frame {frame}, column {column} of the features")
    return features


def read_features(rspecifier: str) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
    """(key, load) of a table; load() gives the (T, D) features, or raises DataError as `check_features`."""
    for key, features in SequentialReader(rspecifier, "matrix"):
        yield key, functools.partial(check_features, features)


def require_most(done: int, failed: int, source: str) -> None:
    """Raises DataError when nothing was done or more failed than succeeded.

    To be called before the writers close, so that then no file appears; `ngsgd.cli.finish` says the rest.
    """
    if done == 0:
        raise DataError(f"{source}: nothing done" + (f", {failed} utterances failed" if failed else ": it is empty"))
    if failed > done:
        raise DataError(f"{source}: most utterances failed, {failed} of {done + failed}; nothing written")


def map_features(
    rspecifier: str, wspecifier: str, function: Callable[[str, np.ndarray], np.ndarray], compress: bool = False
) -> tuple[int, int]:
    """Write function(key, features) for each entry of a table; returns (done, failed). Raises as `require_most`."""
    with Writer(wspecifier, "matrix", compress=compress) as out:
        done, failed = for_each(
            read_features(rspecifier), lambda key, features: out.write(key, function(key, features))
        )
        require_most(done, failed, rspecifier)
    return done, failed


def shapes(rspecifier: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """(key, (T, D)) of each entry of a table, without expanding compressed matrices."""
    for key, features in SequentialReader(rspecifier, "general_matrix"):
        yield key, features.shape


def is_table(text: str) -> bool:
    """Whether the argument is a table (`ark:...`, `scp:...`) and not a file name."""
    return re.match(r"(ark|scp)(,\w+)*:", text) is not None


def read_utt2spk(path: str) -> dict[str, str]:
    """utt2spk given as a file or, as Kaldi wants it, `ark:FILE`. Also for spk2utt, ids behind the first."""
    return read_map(re.sub(r"^ark(,\w+)*:", "", path))


def matrix_finder(source: str, utt2spk: str = "") -> Callable[[str], np.ndarray]:
    """A function from an utterance to its matrix: from a table by speaker (`utt2spk`) or utterance, or one for all.

    The function raises DataError for an utterance without a speaker or a matrix.
    """
    if not is_table(source):
        with open_reader(source) as reader:
            matrix = reader.matrix()
        return lambda utterance: matrix
    speakers = read_utt2spk(utt2spk) if utt2spk else None
    table = RandomReader(source, "matrix")

    def find(utterance: str) -> np.ndarray:
        if speakers is not None and utterance not in speakers:
            raise DataError(f"not in {utt2spk}")
        return table[utterance if speakers is None else speakers[utterance]]

    return find
