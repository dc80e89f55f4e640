"""Speaker adaptation on tables: fMLLR transforms of speakers, and statistics of one kind of features under another."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np

from ngsgd.errors import DataError
from ngsgd.features.stream import check_features, read_features, read_utt2spk
from ngsgd.gmm.alignment import Tally
from ngsgd.gmm.fmllr import FmllrAccumulator, FmllrOptions, estimate
from ngsgd.gmm.model import read_model
from ngsgd.gmm.stats import Accumulator, write_stats
from ngsgd.hmm.labels import LabelOptions, Labels
from ngsgd.kaldi_io.stream import split_words
from ngsgd.kaldi_io.tables import RandomReader, Writer
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclasses.dataclass
class SpeakerOptions:
    """Whose transforms, and by which model."""

    spk2utt: str = opt("", "spk2utt file: a transform for each speaker; without it for each utterance")
    alignment_model: str = opt(
        "", "take the posteriors of the Gaussians from this model of the same Gaussians: the alignment model of SAT"
    )


def estimate_transforms(
    model: str,
    feats: str,
    labels: str,
    transforms: str,
    options: FmllrOptions,
    speakers: SpeakerOptions,
    label_options: LabelOptions,
) -> tuple[int, int]:
    """Write the fMLLR transform of each speaker, in the order of spk2utt; returns (done, failed) utterances.

    A speaker none of whose utterances could be used gets the unit transform, too. Raises DataError when there are no
    utterances or most of them failed.
    """
    transitions, gmm = read_model(model)
    accumulator = FmllrAccumulator(gmm, read_model(speakers.alignment_model)[1] if speakers.alignment_model else None)
    find = Labels(labels, transitions, label_options)
    speaker_of = _speaker_of(speakers.spk2utt)
    tally = Tally("accumulated")
    order = dict.fromkeys((speaker_of or {}).values())
    for key, load in read_features(feats):
        try:
            if speaker_of is not None and key not in speaker_of:
                raise DataError(f"not in {speakers.spk2utt}")
            speaker = speaker_of[key] if speaker_of is not None else key
            order[speaker] = None
            x = load()
            frame, tid, weight = find(key, len(x))
            accumulator.add(speaker, x, frame, transitions.tid_to_pdf[tid], weight)
        except DataError as error:
            tally.skip(key, error)
            continue
        tally.add(len(x))
    accumulator.flush()
    find.warn()
    counts = tally.finish(feats)
    gained = total = 0.0
    with Writer(transforms, "matrix") as out:
        for speaker in order:
            stats = accumulator.of(speaker)
            transform, gain = estimate(stats, options, speaker)
            out.write(speaker, transform)
            gained, total = gained + gain, total + stats.beta
            log.info("%s: %.5f gained a frame, over %.0f frames", speaker, gain / max(stats.beta, 1e-30), stats.beta)
    log.info("%d transforms: %.5f gained a frame, over %.0f frames", len(order), gained / max(total, 1e-30), total)
    return counts


def _speaker_of(spk2utt: str) -> dict[str, str] | None:
    """Speaker of each utterance, in the order of the file; None without one. DataError for an utterance of two."""
    if not spk2utt:
        return None
    found: dict[str, str] = {}
    for speaker, utterances in read_utt2spk(spk2utt).items():
        for utterance in split_words(utterances):
            if utterance in found:
                raise DataError(f"{spk2utt}: {utterance} belongs to {found[utterance]} and to {speaker}")
            found[utterance] = speaker
    return found


def accumulate_two(
    model: str, feats: str, second: str, labels: str, stats: str, options: LabelOptions, binary: bool = True
) -> tuple[int, int]:
    """Write statistics of `second` features, with posteriors of the Gaussians from `feats`; returns (done, failed)."""
    transitions, gmm = read_model(model)
    find = Labels(labels, transitions, options)
    others = RandomReader(second, "matrix")
    tally = Tally("accumulated")
    accumulator = None
    for key, load in read_features(feats):
        try:
            x, y = load(), check_features(others[key])
            if len(x) != len(y):
                raise DataError(f"{len(x)} frames of the first features, {len(y)} of the second")
            frame, tid, weight = find(key, len(x))
            if accumulator is None:
                accumulator = Accumulator(gmm, transitions.tid_to_pdf, y.shape[1])
            if np.any(keep := weight != 0):
                frame = frame[keep]
                accumulator.add(x[frame], tid[keep], weight[keep], y[frame])
        except DataError as error:
            tally.skip(key, error)
            continue
        tally.add(len(x))
    find.warn()
    if accumulator is not None:
        accumulator.flush()
        tally.like = accumulator.stats.total_like
    counts = tally.finish(feats)
    write_stats(stats, accumulator.stats, binary)
    return counts
