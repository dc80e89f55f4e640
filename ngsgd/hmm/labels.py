"""Labels of frames, for estimators: alignments or posteriors, silence weighted, cut to the features' length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.features.stream import LengthOptions
from ngsgd.hmm.transitions import TransitionModel
from ngsgd.kaldi_io.posteriors import Posteriors
from ngsgd.kaldi_io.tables import RandomReader
from ngsgd.options import opt


@dataclass(kw_only=True)
class LabelOptions(LengthOptions):
    """What the labels are, and which count."""

    alignments: bool = opt(False, "the labels are alignments (transition-ids), not posteriors")
    silence_phones: str = opt("", "phones, with colons between, whose frames are weighted by silence-weight")
    silence_weight: float = opt(0.0, "weight of the frames of silence phones", at_least=0)


class Labels:
    """The labels of a table of alignments or posteriors, by utterance."""

    def __init__(self, rspecifier: str, transitions: TransitionModel, options: LabelOptions):
        """Raises DataError for senseless silence phones."""
        self._rspecifier, self._transitions, self._options = rspecifier, transitions, options
        self._table = RandomReader(rspecifier, "int32_vector" if options.alignments else "posterior_arrays")
        self._scale = _transition_scale(transitions, options)
        self._shortened = 0

    def __call__(self, key: str, frames: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(frame, transition-id, weight) (N,) of an utterance with `frames` of features, frames ascending.

        Raises DataError for one without labels, with another length, or with labels that are not the model's.
        """
        if key not in self._table:
            raise DataError(f"no labels for it in {self._rspecifier}")
        value = self._table[key]
        if self._options.alignments:
            value = Posteriors.of_alignment(value)
        frame, tid, weight = value.frame, value.label, value.weight.astype(np.float64)
        common = self._options.common(frames, len(value))
        top = self._transitions.num_transition_ids
        if len(tid) and not 0 < tid.min() <= tid.max() <= top:
            raise DataError(
                f"labels {tid.min()}..{tid.max()}, the model has transition-ids 1..{top}: they belong to another model"
            )
        self._shortened += len(value) != frames
        keep = frame < common
        tid = tid[keep]
        return frame[keep], tid, weight[keep] * self._scale[tid]

    def warn(self) -> None:
        """Say how many utterances had slightly different lengths."""
        self._options.warn(self._shortened)


def _transition_scale(transitions: TransitionModel, options: LabelOptions) -> np.ndarray:
    """Weight of each transition-id (entry 0 unused)."""
    try:
        silence = [int(word) for word in options.silence_phones.split(":") if word]
    except ValueError:
        raise DataError(f"--silence-phones: expected integers with colons, got '{options.silence_phones}'") from None
    return np.where(np.isin(transitions.tid_to_phone, silence), options.silence_weight, 1.0)
