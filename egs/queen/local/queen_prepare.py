"""Writes what `prepare_data.py` promises: recordings, data directories, training text, vocabulary, counts."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import queen_corpus
import soundfile
from queen_container import Container
from queen_corpus import LISTS, SETS, QueenOptions, Utterance

from ngsgd.data.corpus import data_directory, write_prepared
from ngsgd.errors import DataError
from ngsgd.lang.dict_writer import write_lines

log = logging.getLogger(__name__)

RATE = 11025  # Hz
TABLE = "set\tutterances\tspeakers\tminutes\twords\ttypes\tunseen_words_percent"


def decode(container: Container, name: str) -> np.ndarray:
    """The samples of a recording, int16. Raises DataError when it is not mono at 11,025 Hz, or damaged."""
    try:
        samples, rate = soundfile.read(io.BytesIO(container[name]), dtype="int16", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise DataError(f"{container.path}: recording {name}: {error.error_string}") from None
    if rate != RATE or samples.shape[1] != 1:
        raise DataError(
            f"{container.path}: recording {name}: expected mono at {RATE} Hz, "
            f"got {samples.shape[1]} channels at {rate} Hz"
        )
    return samples[:, 0]


def extract(container: Container, utterances: Iterable[Utterance], folder: Path) -> dict[str, str]:
    """Write the recordings as FLAC, those that are there already excepted. Returns utterance -> absolute path.

    Written aside and renamed, but not flushed one by one (thousands of flushes take a minute on a busy disk): after a
    loss of power, which leaves such files empty, they are written again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wav = {}
    for u in utterances:
        path = (folder / f"{u.recording.removesuffix('.SB')}.flac").absolute()
        if not (path.exists() and path.stat().st_size):
            aside = path.with_name(f"{path.name}.tmp")
            soundfile.write(aside, decode(container, u.recording), RATE, format="FLAC", subtype="PCM_16")
            aside.replace(path)
        wav[u.id] = str(path)
    return wav


def seconds(container: Container, utterances: Iterable[Utterance]) -> dict[str, float]:
    """Length of each recording."""
    return {u.recording: soundfile.info(io.BytesIO(container[u.recording])).duration for u in utterances}


def counts(name: str, utterances: Sequence[Utterance], length: Mapping[str, float], known: set[str]) -> str:
    """A line of TABLE; known: the words of the training text."""
    words = [w for u in utterances for w in u.words]
    unknown = 100.0 * sum(w not in known for w in words) / len(words)
    minutes = sum(length[u.recording] for u in utterances) / 60.0
    speakers = len({u.speaker for u in utterances})
    return f"{name}\t{len(utterances)}\t{speakers}\t{minutes:.2f}\t{len(words)}\t{len(set(words))}\t{unknown:.2f}"


def prepare(container_path: str, conf_dir: str, data_dir: str, options: QueenOptions) -> int:
    """Everything. Returns the number of utterances in all sets."""
    container = Container(container_path)
    lines = queen_corpus.checked_lines(container)
    sets = {name: queen_corpus.listed(f"{conf_dir}/{LISTS[name]}", lines) for name in SETS}
    if options.more:
        chosen = [u for name in SETS for u in sets[name]]
        sets["train"] = sorted(sets["train"] + queen_corpus.left_out(lines, chosen), key=lambda u: u.id)
    text = [" ".join(u.words) for u in sets["train"]]
    known = {w for u in sets["train"] for w in u.words}
    vocabulary = known | {w for name in SETS for u in sets[name] for w in u.words}
    length = seconds(container, (u for name in SETS for u in sets[name]))
    if options.quick:
        sets["train"] = queen_corpus.shortened(sets["train"], length, options.quick_minutes)

    out = Path(data_dir)
    (out / "local/lm").mkdir(parents=True, exist_ok=True)
    write_lines(out / "local/lm/train.txt", text)
    write_lines(out / "local/lm/vocabulary.txt", sorted(vocabulary))
    table = [TABLE] + [counts(name, sets[name], length, known) for name in SETS]
    for line in table:
        log.info("%s", line)
    log.info("vocabulary: %d words", len(vocabulary))
    for name in SETS:
        wav = extract(container, sets[name], out / "local/audio")
        words = {u.id: " ".join(u.words) for u in sets[name]}
        write_prepared(data_directory(wav, words, {u.id: u.speaker for u in sets[name]}), out / name)
    write_lines(out / "local/counts.tsv", table)
    return sum(len(us) for us in sets.values())
