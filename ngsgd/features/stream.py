"""Going through a table of features: one bad utterance is named, counted and left out."""

import logging
import os
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.kaldi_io.each import for_each, require_most
from ngsgd.kaldi_io.holders import holders
from ngsgd.kaldi_io.lists import read_map
from ngsgd.kaldi_io.stream import TokenReader, open_reader
from ngsgd.kaldi_io.tables import (
    RandomReader,
    SequentialReader,
    Specifier,
    Writer,
    is_table,
    parse_specifier,
    read_scp,
)
from ngsgd.options import opt

log = logging.getLogger(__name__)


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


@holders.register("matrix_shape")
class MatrixShape:
    """(rows, columns) of a matrix, of whose content no more is read than needed: for entries that are sought out."""

    @staticmethod
    def read(reader: TokenReader) -> tuple[int, int]:
        if not reader.binary:
            return reader.matrix().shape
        if reader.expect("FM", "DM", "CM", "CM2", "CM3").startswith("CM"):
            reader.exactly(8, "a compressed matrix")  # minimum and range
            return struct.unpack("<ii", reader.exactly(8, "a compressed matrix"))
        return reader.int32(), reader.int32()


def shapes(rspecifier: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """(key, (T, D)) of each entry of a table; compressed matrices are not expanded, of a script headers are read."""
    if _headers_suffice(parse_specifier(rspecifier)):
        yield from SequentialReader(rspecifier, "matrix_shape")
        return
    for key, features in SequentialReader(rspecifier, "general_matrix"):
        yield key, features.shape


def _headers_suffice(table: Specifier) -> bool:
    """A script of places in files, without ranges and commands."""
    if table.form != "scp" or not os.path.isfile(table.path):
        return False
    return not any(place.endswith(("]", "|")) for _, place in read_scp(table.path))


@dataclass(kw_only=True)
class LengthOptions:
    """Features and alignments of slightly different lengths."""

    length_tolerance: int = opt(2, "frames by which features and alignment may differ; the longer is cut", at_least=0)

    def common(self, features: int, alignment: int) -> int:
        """The shorter of two lengths, frames. Raises DataError when they differ by more than the tolerance."""
        if abs(features - alignment) > self.length_tolerance:
            raise DataError(f"{features} frames of features, {alignment} in the alignment")
        return min(features, alignment)

    def warn(self, utterances: int) -> None:
        """Say how many were cut, if any."""
        if utterances:
            log.warning(
                "features and alignment differed by up to %d frames in %d utterances: the longer was cut",
                self.length_tolerance,
                utterances,
            )


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
