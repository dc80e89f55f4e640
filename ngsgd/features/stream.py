"""Going through a table of features: one bad utterance is named, counted and left out."""

import re
from collections.abc import Callable, Iterator

import numpy as np

from ngsgd.errors import DataError
from ngsgd.kaldi_io.each import for_each, require_most
from ngsgd.kaldi_io.lists import read_map
from ngsgd.kaldi_io.stream import open_reader
from ngsgd.kaldi_io.tables import RandomReader, SequentialReader, Writer, is_table


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
    for key, load in SequentialReader(rspecifier, "matrix").items():
        yield key, lambda load=load: check_features(load())


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
