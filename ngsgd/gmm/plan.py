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
    initial_beam: float = opt(6.0, "beam of the first alignment")
    regular_beam: float = opt(10.0, "beam of the later alignments")


@dataclasses.dataclass(frozen=True)
class Row:
    """Iteration x makes model x + 1 with `gauss` Gaussians, from alignments made now (`realign`) or before."""

    iteration: int
    gauss: int
    realign: bool
    beam: float


def plan(start_gauss: int, options: PlanOptions) -> list[Row]:
    """Rows of iterations 1 .. num_iters - 1; the Gaussians grow by equal steps up to max_iter_inc."""
    words = options.realign_iters.split()
    if not all(w.isdigit() for w in words):
        raise DataError(f"--realign-iters: expected numbers, got '{options.realign_iters}'")
    realign = {int(w) for w in words}
    if options.num_iters < 2 or options.max_iter_inc < 1 or 1 not in realign:
        raise DataError(
            "training needs 2 iterations, must add Gaussians for 1, and must align anew in iteration 1; "
            f"got {options.num_iters}, {options.max_iter_inc} and '{options.realign_iters}'"
        )
    step = max(options.totgauss - start_gauss, 0) // options.max_iter_inc
    rows = []
    for x in range(1, options.num_iters):
        gauss = start_gauss + step * min(x - 1, options.max_iter_inc)
        beam = options.initial_beam if x == 1 else options.regular_beam
        rows.append(Row(x, gauss, x in realign, beam))
    return rows


def write_plan(model: str, path: str, options: PlanOptions) -> None:
    """Write the rows as tab-separated text with a head line, `next` being the iteration after: for a model to start
    from, whose number of Gaussians is that at the start."""
    rows = plan(read_model(model)[1].num_gauss, options)
    with open_text_writer(path) as out:
        out.write("iteration\tnext\tgauss\trealign\tbeam\n")
        for row in rows:
            out.write(f"{row.iteration}\t{row.iteration + 1}\t{row.gauss}\t{str(row.realign).lower()}\t{row.beam:g}\n")
