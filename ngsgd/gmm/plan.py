"""The schedule of a GMM training run as rows: what each iteration aligns with and how many Gaussians it ends with."""

from __future__ import annotations

import dataclasses

from ngsgd.errors import DataError
from ngsgd.gmm.model import read_model
from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.options import opt


@dataclasses.dataclass
class PlanOptions:
    """The schedule of training; defaults are those of Kaldi's train_mono."""

    num_iters: int = opt(40, "iterations")
    max_iter_inc: int = opt(30, "last iteration that adds Gaussians")
    totgauss: int = opt(1000, "Gaussians in all at the end")
    realign_iters: str = opt(
        "1 2 3 4 5 6 7 8 9 10 12 14 16 18 20 23 26 29 32 35 38",
        "iterations that align anew, the others keep the last alignments",
    )
    transform_iters: str = opt(
        "", "iterations that estimate transforms of the features (MLLT, fMLLR) before their model"
    )
    start_gauss: int = opt(
        0, "Gaussians of iteration 1, such as the leaves of a new tree; 0: those of the model", at_least=0
    )
    initial_beam: float = opt(6.0, "beam of the first alignment")
    regular_beam: float = opt(10.0, "beam of the later alignments")


@dataclasses.dataclass(frozen=True)
class Row:
    """Iteration x makes model x + 1 with `gauss` Gaussians, from alignments made now (`realign`) or before.

    `transform`: between the two, transforms of the features are estimated.
    """

    iteration: int
    gauss: int
    realign: bool
    beam: float
    transform: bool


def _iterations(name: str, text: str) -> set[int]:
    words = text.split()
    if not all(w.isdigit() for w in words):
        raise DataError(f"--{name}: expected numbers, got '{text}'")
    return {int(w) for w in words}


def plan(start_gauss: int, options: PlanOptions) -> list[Row]:
    """Rows of iterations 1 .. num_iters - 1; the Gaussians grow by equal steps up to max_iter_inc."""
    realign = _iterations("realign-iters", options.realign_iters)
    transform = _iterations("transform-iters", options.transform_iters)
    if options.num_iters < 2 or options.max_iter_inc < 1:
        raise DataError(
            "training needs 2 iterations and must add Gaussians for 1; "
            f"got {options.num_iters} and {options.max_iter_inc}"
        )
    if 1 not in realign and not options.start_gauss:
        raise DataError(f"--realign-iters: a flat start must align anew in iteration 1, got '{options.realign_iters}'")
    step = max(options.totgauss - start_gauss, 0) // options.max_iter_inc
    rows = []
    for x in range(1, options.num_iters):
        gauss = start_gauss + step * min(x - 1, options.max_iter_inc)
        beam = options.initial_beam if x == 1 else options.regular_beam
        rows.append(Row(x, gauss, x in realign, beam, x in transform))
    return rows


def write_plan(model: str, path: str, options: PlanOptions) -> None:
    """Write the rows as tab-separated text with a head line, `next` being the iteration after: for a model to start
    from, whose number of Gaussians is that at the start."""
    rows = plan(options.start_gauss or read_model(model)[1].num_gauss, options)
    with open_text_writer(path) as out:
        out.write("iteration\tnext\tgauss\trealign\tbeam\ttransform\n")
        for row in rows:
            realign, transform = (str(flag).lower() for flag in (row.realign, row.transform))
            out.write(f"{row.iteration}\t{row.iteration + 1}\t{row.gauss}\t{realign}\t{row.beam:g}\t{transform}\n")
