"""Forced alignment by a network: `ngsgd.hmm.align` on log p(pdf | x) - log p(pdf)."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import ngsgd.hmm.graphs  # noqa: F401  registers the table kind "fst_arrays"
from ngsgd.backend import array_module
from ngsgd.errors import DataError
from ngsgd.features.stream import read_features
from ngsgd.gmm.alignment import Tally
from ngsgd.hmm.align import Aligner, AlignOptions
from ngsgd.kaldi_io.tables import SequentialReader, Writer
from ngsgd.nnet.compute import ComputeOptions, Computer, divisor_priors, finish_output
from ngsgd.nnet.model import read_model
from ngsgd.options import opt


@dataclasses.dataclass
class NnetAlignOptions:
    """How the network's output becomes likelihoods."""

    divide_by_priors: bool = opt(True, "divide posteriors by the priors of the model")
    block_size: int = opt(
        1024, "frames of an utterance computed at once; a matter of speed and memory only", at_least=1
    )
    device: str = opt("cpu", "where to compute", choices=("cpu", "gpu"))


def align_archive(
    model: str, graphs: str, feats: str, alignments: str, align: AlignOptions, options: NnetAlignOptions
) -> tuple[int, int]:
    """Align every utterance of two tables, as Kaldi's nnet-align-compiled; returns (done, failed).

    What occurs in one table only, or has no path through its graph, counts as failed. The tables may be in any order;
    in the same order they take little memory.
    """
    xp = array_module(options.device)
    am = read_model(model)
    am.check_outputs()
    aligner = Aligner(am.transitions, align)
    computer = Computer(am.nnet.to(xp), block_size=options.block_size, xp=xp)
    priors = divisor_priors(am.priors, model) if options.divide_by_priors else None
    finishing = ComputeOptions(apply_log=True, renormalize=False)
    tally = Tally("aligned")
    with Writer(alignments, "int32_vector") as out:
        for key, graph, load in paired(SequentialReader(graphs, "fst_arrays"), read_features(feats)):
            try:
                if graph is None or load is None:
                    raise DataError("it has no training graph" if graph is None else "it has no features")
                loglikes = finish_output(computer.output(load()), finishing, priors)
                found = aligner.align(graph, lambda pdfs, loglikes=loglikes: loglikes[:, pdfs])
            except DataError as error:
                tally.skip(key, error)
                continue
            out.write(key, found.tids)
            tally.add(len(loglikes), found.acoustic * len(loglikes), found.retried)
        return tally.finish(graphs)


def paired(a: Iterable[tuple[str, Any]], b: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any, Any]]:
    """(key, value in a, value in b) for every key of two tables, None where one has it not; these come last."""
    waiting: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    sources = [iter(a), iter(b)]
    running = [0, 1]
    while running:
        for side in list(running):
            entry = next(sources[side], None)
            if entry is None:
                running.remove(side)
                continue
            key, value = entry
            if key in waiting[1 - side]:
                other = waiting[1 - side].pop(key)
                yield (key, value, other) if side == 0 else (key, other, value)
            else:
                waiting[side][key] = value
    for key, value in waiting[0].items():
        yield key, value, None
    for key, value in waiting[1].items():
        yield key, None, value
