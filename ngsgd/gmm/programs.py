"""What the programs on GMM model files do: sum statistics, estimate, boost silence, copy, describe."""

from __future__ import annotations

import dataclasses

import numpy as np

from ngsgd.gmm.model import read_model, write_model
from ngsgd.gmm.stats import read_stats, write_stats
from ngsgd.gmm.update import (
    GmmUpdateOptions,
    SplitOptions,
    TransitionUpdateOptions,
    boost_silence,
    parse_phones,
    parse_update_flags,
    split,
    update_gmm,
    update_transitions,
)
from ngsgd.kaldi_io.copying import OutputOptions
from ngsgd.kaldi_io.stream import open_writer
from ngsgd.options import opt


@dataclasses.dataclass
class OccsOptions:
    """Counts beside the model."""

    write_occs: str = opt("", "file for the frames of each pdf")


@dataclasses.dataclass
class BoostSilenceOptions:
    """How much silence is boosted."""

    boost: float = opt(1.5, "factor on the mixture weights of silence")


def sum_stats(target: str, sources: list[str], output: OutputOptions) -> int:
    """Write the sum of accumulator files; returns how many there were."""
    write_stats(target, read_stats(sources), output.binary)
    return len(sources)


def estimate(
    model: str,
    stats: list[str],
    target: str,
    transition_update: TransitionUpdateOptions,
    gmm_update: GmmUpdateOptions,
    mixing_up: SplitOptions,
    occs: OccsOptions,
    output: OutputOptions,
) -> None:
    """One iteration of training: add the statistics up, update transitions and mixtures, mix up, write."""
    transitions, gmm = read_model(model)
    sums = read_stats(stats)
    if parse_update_flags(gmm_update.update_flags) & parse_update_flags("t"):
        update_transitions(transitions, sums.transitions, transition_update)
    gmm = update_gmm(gmm, sums, gmm_update)
    pdf_occ = sums.pdf_occ()
    if mixing_up.mix_up:
        gmm = split(gmm, pdf_occ, mixing_up)
    if occs.write_occs:
        with open_writer(occs.write_occs, binary=False) as w:
            w.vector(pdf_occ)
    write_model(target, transitions, gmm, output.binary)


def boost_file(phones: str, source: str, target: str, boost: BoostSilenceOptions, output: OutputOptions) -> None:
    """Write a model with the weights of the phones' pdfs boosted."""
    transitions, gmm = read_model(source)
    write_model(target, transitions, boost_silence(transitions, gmm, parse_phones(phones), boost.boost), output.binary)


def copy_model(source: str, target: str, output: OutputOptions) -> None:
    """Copy a model, from binary to text or back."""
    write_model(target, *read_model(source), output.binary)


def describe_model(source: str) -> list[str]:
    """Lines of `name value` in Kaldi's words."""
    transitions, gmm = read_model(source)
    return [
        f"number of phones {len(np.unique(transitions.tuples[:, 0]))}",
        f"number of pdfs {gmm.num_pdfs}",
        f"number of transition-ids {transitions.num_transition_ids}",
        f"number of transition-states {transitions.num_transition_states}",
        f"feature dimension {gmm.dim}",
        f"number of gaussians {gmm.num_gauss}",
    ]
