"""From alignments, a transition-id a frame, to pdfs and phones."""

from __future__ import annotations

import dataclasses

import numpy as np

from ngsgd.errors import DataError
from ngsgd.hmm.transitions import TransitionModel, read_transition_model
from ngsgd.kaldi_io.tables import SequentialReader, Writer
from ngsgd.options import opt


@dataclasses.dataclass
class PhonesOptions:
    """What is written for each utterance."""

    per_frame: bool = opt(False, "write the phone of every frame")
    write_lengths: bool = opt(False, "write pairs of phone and length in frames, as 'phone length ; phone length'")


def check_alignment(transitions: TransitionModel, tids: np.ndarray) -> np.ndarray:
    """The alignment itself. DataError when it is empty or has transition-ids that the model has not."""
    if not len(tids):
        raise DataError("an empty alignment")
    if tids.min() < 1 or tids.max() > transitions.num_transition_ids:
        raise DataError(
            f"alignment with transition-ids {tids.min()}..{tids.max()}, the model has "
            f"1..{transitions.num_transition_ids}: it belongs to another model"
        )
    return tids


def is_reordered(transitions: TransitionModel, tids: np.ndarray) -> bool:
    """Whether self-loops come after the transition that leaves their state (Kaldi's default) and not before it."""
    state, loop = transitions.tid_to_state[tids], transitions.is_self_loop[tids]
    change = np.flatnonzero(state[1:] != state[:-1])
    told = change[loop[change] | loop[change + 1]]
    if len(told):
        return bool(loop[told[0]])
    return bool(not loop[0] and loop[-1])


def split_to_phones(transitions: TransitionModel, tids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The phones of an alignment.

    Returns (phones (n,) int32, bounds (n + 1,) int64): phone i has frames bounds[i] .. bounds[i + 1] - 1.

    Raises DataError as `check_alignment`, and when a phone does not end before the next begins.
    """
    check_alignment(transitions, tids)
    state, loop = transitions.tid_to_state[tids], transitions.is_self_loop[tids]
    leaves = transitions.is_final[tids]
    if is_reordered(transitions, tids):
        # a self-loop belongs to the last transition before it that was none
        last = np.maximum.accumulate(np.where(loop, -1, np.arange(len(tids))))
        leaves = np.where(last >= 0, leaves[last], False)
        ends = leaves & np.append(~loop[1:], True)
    else:
        ends = leaves
    phone = transitions.tid_to_phone[tids]
    broken = np.flatnonzero((phone[1:] != phone[:-1]) & ~ends[:-1])
    if len(broken) or not ends[-1]:
        at = int(broken[0]) if len(broken) else len(tids) - 1
        raise DataError(
            f"phone {phone[at]} is left at frame {at} before its end, in state {state[at]} of the model: is the "
            "alignment by another model?"
        )
    bounds = np.concatenate([[0], np.flatnonzero(ends) + 1])
    return phone[bounds[:-1]].astype(np.int32), bounds


def alignments_to_pdfs(model: str, alignments: str, pdfs: str) -> tuple[int, int]:
    """Write the pdf of every frame; returns (done, failed)."""
    from ngsgd.features.stream import for_each, require_most

    transitions = read_transition_model(model)
    with Writer(pdfs, "int32_vector") as out:
        done, failed = for_each(
            _loads(alignments),
            lambda key, tids: out.write(key, transitions.tid_to_pdf[check_alignment(transitions, tids)]),
        )
        require_most(done, failed, alignments)
    return done, failed


def alignments_to_phones(model: str, alignments: str, phones: str, options: PhonesOptions) -> tuple[int, int]:
    """Write the phones of every utterance; returns (done, failed)."""
    from ngsgd.features.stream import for_each, require_most

    transitions = read_transition_model(model)
    kind = "tokens" if options.write_lengths else "int32_vector"
    with Writer(phones, kind) as out:

        def convert(key: str, tids: np.ndarray) -> None:
            names, bounds = split_to_phones(transitions, tids)
            lengths = np.diff(bounds)
            if options.write_lengths:
                pairs = [f"{p} {n}" for p, n in zip(names.tolist(), lengths.tolist(), strict=True)]
                out.write(key, " ; ".join(pairs).split())
            else:
                out.write(key, np.repeat(names, lengths) if options.per_frame else names)

        done, failed = for_each(_loads(alignments), convert)
        require_most(done, failed, alignments)
    return done, failed


def _loads(alignments: str):
    for key, tids in SequentialReader(alignments, "int32_vector"):
        yield key, lambda tids=tids: tids
