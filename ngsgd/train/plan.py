"""The whole schedule of a training run as rows, before any of it is run: DIR/plan.tsv.

Letters, with the scheme of Povey, Zhang and Khudanpur (2015), sections 2-4, as in Kaldi's train_pnorm_simple2.sh:

    A   archives of examples          F   labelled frames of an example
    M   A F expanded archives: an archive taken at one frame position of its examples
    E   epochs of falling rate        X   extra epochs at the final rate
    J0, J1  jobs at first, at last    a, b  initial and final effective learning rate

    iterations            I  = (E + X) M / ((J0 + J1) / 2)                              (1)
    jobs                  Jx = round(J0 + (J1 - J0) x / I)                              (2)
    archives used so far  Kx = sum of Jy over y < x
    job j = 1..Jx takes   k  = Kx + j - 1: archive k mod A + 1, frame (k div A) mod F   (3)
    effective rate        ex = a (b / a)^(Kx / (E M)) while Kx < E M, then b            (4)
    a job's own rate      Jx ex: averaging Jx models undoes the factor                 (5)

Consecutive jobs get different archives, and an archive comes again at its next frame position only after all others:
its examples at neighbouring frames are nearly the same. On iteration 0 and after a layer was added the minibatch is
halved and the best job's model taken instead of the average: models that change fast do not average well.
"""

import dataclasses
import math
from dataclasses import dataclass

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.kaldi_io.lists import read_lines
from ngsgd.train.options import TrainOptions

AVERAGE, BEST = "average", "best"
NO_LAYER = "-"


@dataclass(frozen=True)
class Row:
    """One iteration.

    iteration x makes model x + 1 from model x; epoch: passes over the data before it; learning_rate: a job's own (5);
    archives, frames: one of each a job, archives from 1, frames from 0; merge: "average" or "best"; insert: file name
    in DIR of the configuration of a layer to insert first, "-" for none.
    """

    iteration: int
    epoch: float
    jobs: int
    learning_rate: float
    minibatch_size: int
    archives: tuple[int, ...]
    frames: tuple[int, ...]
    merge: str
    insert: str


COLUMNS = [field.name for field in dataclasses.fields(Row)]


def make_plan(options: TrainOptions, num_archives: int, frames_per_eg: int) -> list[Row]:
    """The rows for examples in `num_archives` archives of `frames_per_eg` labelled frames.

    Raises DataError when there are too few iterations for the layers. More jobs than M are cut to M.
    """
    options.check()
    expanded = num_archives * frames_per_eg  # M
    first, last = (min(jobs, expanded) for jobs in (options.num_jobs_initial, options.num_jobs_final))
    falling = options.num_epochs * expanded
    total = falling + options.num_epochs_extra * expanded
    iterations = max(1, 2 * total // (first + last))  # (1)
    inserted = {1 + i * options.add_layers_period for i in range(options.hidden_layers - 1)}
    if inserted and max(inserted) >= iterations:
        raise DataError(
            f"{iterations} iterations are too few to add {len(inserted)} hidden layers, the last at iteration "
            f"{max(inserted)}: give more --num-epochs, fewer layers or jobs, or a shorter --add-layers-period"
        )
    rows, used = [], 0
    for x in range(iterations):
        jobs = int(0.5 + first + (last - first) * x / iterations)  # (2)
        is_last = x + 1 == iterations
        rate = effective_rate(options, used, falling) if not is_last else options.final_effective_lrate
        changed = x == 0 or x in inserted
        ks = range(used, used + jobs)
        rows.append(
            Row(
                iteration=x,
                epoch=used / expanded,
                jobs=jobs,
                learning_rate=rate * jobs,  # (5)
                minibatch_size=options.minibatch_size // 2 if changed else options.minibatch_size,
                archives=tuple(k % num_archives + 1 for k in ks),  # (3)
                frames=tuple(k // num_archives % frames_per_eg for k in ks),
                merge=BEST if changed else AVERAGE,
                insert="hidden.config" if x in inserted else NO_LAYER,
            )
        )
        used += jobs
    return rows


def effective_rate(options: TrainOptions, used: int, falling: int) -> float:
    """Equation (4): the rate after `used` of the `falling` expanded archives over which it falls."""
    initial, final = options.initial_effective_lrate, options.final_effective_lrate
    return initial * math.exp(used / falling * math.log(final / initial)) if used < falling else final


def write_plan(path: str, rows: list[Row]) -> None:
    """One line a row under a line of column names; the lists separated by commas."""
    with open_text_writer(path) as out:
        out.write("\t".join(COLUMNS) + "\n")
        for row in rows:
            out.write("\t".join(_format(getattr(row, name)) for name in COLUMNS) + "\n")


def _format(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return repr(round(value, 10)) if isinstance(value, float) else str(value)


def read_plan(path: str) -> list[Row]:
    """The rows of a plan, edited by hand perhaps. Raises DataError with the line for anything that cannot be run."""
    lines = read_lines(path)
    if not lines or lines[0].split("\t") != COLUMNS:
        raise DataError(f"{path}:1: expected the columns {' '.join(COLUMNS)}")
    rows = []
    for number, line in enumerate(lines[1:], 2):
        try:
            row = _parse(line.split("\t"))
        except ValueError as error:
            raise DataError(f"{path}:{number}: {error}") from None
        if row.iteration != len(rows):
            raise DataError(f"{path}:{number}: expected iteration {len(rows)}, got {row.iteration}")
        rows.append(row)
    if not rows:
        raise DataError(f"{path}: no iterations")
    return rows


def _parse(cells: list[str]) -> Row:
    if len(cells) != len(COLUMNS):
        raise ValueError(f"expected {len(COLUMNS)} columns separated by tabs, got {len(cells)}")
    iteration, epoch, jobs, rate, minibatch, archives, frames, merge, insert = cells
    numbers = int(iteration), float(epoch), int(jobs), float(rate), int(minibatch)
    row = Row(*numbers, _ints(archives), _ints(frames), merge, insert)
    if not row.jobs == len(row.archives) == len(row.frames) > 0:
        raise ValueError(f"{row.jobs} jobs, but {len(row.archives)} archives and {len(row.frames)} frames")
    if merge not in (AVERAGE, BEST):
        raise ValueError(f"merge is '{merge}', expected {AVERAGE} or {BEST}")
    if row.minibatch_size < 1 or not 0 < row.learning_rate < float("inf"):
        raise ValueError("expected a positive minibatch size and learning rate")
    return row


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))
