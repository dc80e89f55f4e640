"""Posteriors of transition-ids: made from alignments, silence weighted, small weights pruned at random.

Programs that accumulate from posteriors take alignments, too, and weight silence (`ngsgd.hmm.labels`): quicker than the
pipe of programs.
"""

from __future__ import annotations

import dataclasses
import zlib

import numpy as np

import ngsgd.kaldi_io.posteriors  # noqa: F401  registers the table kind "posterior_arrays"
from ngsgd.errors import DataError
from ngsgd.gmm.update import parse_phones
from ngsgd.hmm.phones import check_alignment
from ngsgd.hmm.transitions import read_transition_model
from ngsgd.kaldi_io.each import for_each, require_most
from ngsgd.kaldi_io.posteriors import Posteriors
from ngsgd.kaldi_io.tables import SequentialReader, Writer
from ngsgd.options import opt


@dataclasses.dataclass
class WeightSilenceOptions:
    """How the weight of silence reaches the pairs of a frame."""

    distribute: bool = opt(
        False, "weight all pairs of a frame alike, by the share of silence in it, instead of those of silence only"
    )


@dataclasses.dataclass
class PruneOptions:
    """Small weights, drawn from."""

    rand_prune: float = opt(
        0.0,
        "weights w below this become this with probability w / this, else 0 (drawn per utterance): less to do",
        at_least=0,
    )


def convert_alignments(alignments: str, posteriors: str) -> tuple[int, int]:
    """Write alignments as posteriors, of weight 1; returns (done, failed)."""
    with Writer(posteriors, "posterior_arrays") as out:
        done, failed = for_each(
            SequentialReader(alignments, "int32_vector").items(),
            lambda key, tids: out.write(key, Posteriors.of_alignment(tids)),
        )
        require_most(done, failed, alignments)
    return done, failed


def weight_silence(posteriors: Posteriors, silent: np.ndarray, weight: float, distribute: bool) -> Posteriors:
    """Posteriors with the pairs of transition-ids where silent (R + 1,) is true multiplied by `weight`.

    With `distribute` instead all pairs of a frame, by (weight s + n) / (s + n), with s and n the sums over its pairs
    of silence and of the others. What this leaves nothing of is taken out; as Kaldi's weight-silence-post.
    """
    factor = np.where(silent[posteriors.label], np.float32(weight), np.float32(1.0))
    keep = factor != 0
    if distribute:
        frame, frames = posteriors.frame, len(posteriors)
        total = np.bincount(frame, posteriors.weight, minlength=frames)
        weighted = np.bincount(frame, posteriors.weight * factor, minlength=frames)
        share = np.divide(weighted, total, out=np.ones(frames), where=total != 0)
        factor = share.astype(np.float32)[frame]
        keep = factor != 0
    scaled = dataclasses.replace(posteriors, weight=posteriors.weight * factor)
    return scaled.kept(keep)


def weight_silence_archive(
    weight: str, phones: str, model: str, source: str, target: str, options: WeightSilenceOptions
) -> tuple[int, int]:
    """Write posteriors with silence weighted; returns (done, failed). DataError for a weight that is no number."""
    try:
        factor = float(weight)
    except ValueError:
        raise DataError(f"expected the weight of silence, got '{weight}'") from None
    transitions = read_transition_model(model)
    silent = np.isin(transitions.tid_to_phone, parse_phones(phones) if phones else [])

    def work(key: str, value: Posteriors) -> None:
        if len(value.label):
            check_alignment(transitions, value.label)
        out.write(key, weight_silence(value, silent, factor, options.distribute))

    with Writer(target, "posterior_arrays") as out:
        done, failed = for_each(SequentialReader(source, "posterior_arrays").items(), work)
        require_most(done, failed, source)
    return done, failed


def uniform(key: str, *shape: int) -> np.ndarray:
    """Random numbers from 0 to 1 of an utterance: the same in each run, in whatever job."""
    return np.random.default_rng(zlib.crc32(key.encode())).random(shape)


def pruned(weight: np.ndarray, threshold: float, drawn: np.ndarray) -> np.ndarray:
    """Weights below the threshold set to it with probability weight / threshold, else to 0: the mean stays.

    drawn: numbers from 0 to 1, of the shape of weight.
    """
    if threshold <= 0:
        return weight
    kept = np.where(drawn * threshold < np.abs(weight), np.sign(weight) * threshold, 0.0)
    return np.where(np.abs(weight) < threshold, kept, weight)
