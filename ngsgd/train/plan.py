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
    a job's own rate      Jx ex / g: averaging Jx models undoes the factor, g is the   (5)
                          gain of the way to average (ngsgd.nnet.averaging; 1 in the plain one)

Consecutive jobs get different archives, and an archive comes again at its next frame position only after all others:
its examples at neighbouring frames are nearly the same. On iteration 0 and after a layer was added the minibatch is
halved and the best job's model taken instead of the average: models that change fast do not average well. Mixing up
comes half-way from the last added layer to the end of the falling rate, unless another epoch is asked for.
"""

import dataclasses
import math
from dataclasses import dataclass

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.kaldi_io.lists import read_lines
from ngsgd.nnet.averaging.rule import all_averaging, averaging_class
from ngsgd.train.options import TrainOptions

BEST = "best"  # instead of a way to average
NONE = "-"  # no layer, nothing to be done
FIX, SHRINK = "fix", "shrink"


@dataclass(frozen=True)
class Row:
    """One iteration.

    iteration x makes model x + 1 from model x; epoch: passes over the data before it; learning_rate: a job's own (5);
    archives, frames: one of each a job, archives from 1, frames from 0; merge: a way to average or "best"; insert:
    file name in DIR of the configuration of a layer to insert first, "-" for none; mix_up: softmax outputs in all to
    mix up to first, 0 for as they are; after: what is done to the model last, "fix" its neurons, "shrink" (or stretch)
    its layers by factors fitted to examples, or "-"; alignment: 0 for the labels that the examples were made with, k
    for those of the k-th realignment, by the model before the first such row.
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
    mix_up: int
    after: str
    alignment: int

    @property
    def reshapes(self) -> bool:
        """Whether model x + 1 has another shape than model x."""
        return self.insert != NONE or self.mix_up > 0


COLUMNS = [field.name for field in dataclasses.fields(Row)]
ABSENT = {"mix_up": "0", "after": NONE, "alignment": "0"}  # the meaning of a file without these columns at its end


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
    inserted = {1 + i * options.add_layers_period: name for i, name in enumerate(options.layer_configs)}
    if inserted and max(inserted) >= iterations:
        raise DataError(
            f"{iterations} iterations are too few to add {len(inserted)} hidden layers, the last at iteration "
            f"{max(inserted)}: give more --num-epochs, fewer layers or jobs, or a shorter --add-layers-period"
        )
    mixed_up = _mix_up_iteration(options, iterations, max(inserted, default=0), falling, total)
    way = averaging_class(options.averaging)
    realigned = _realign_epochs(options)
    rows, used, alignment = [], 0, 0
    for x in range(iterations):
        jobs = int(0.5 + first + (last - first) * x / iterations)  # (2)
        is_last = x + 1 == iterations
        rate = effective_rate(options, used, falling) if not is_last else options.final_effective_lrate
        changed = x == 0 or x in inserted
        gain = 1.0 if changed else way(options.ways(), jobs).gain
        if alignment < len(realigned) and used / expanded >= realigned[alignment]:
            alignment += 1
        ks = range(used, used + jobs)
        rows.append(
            Row(
                iteration=x,
                epoch=used / expanded,
                jobs=jobs,
                learning_rate=rate * jobs / gain,  # (5)
                minibatch_size=options.minibatch_size // 2 if changed else options.minibatch_size,
                archives=tuple(k % num_archives + 1 for k in ks),  # (3)
                frames=tuple(k // num_archives % frames_per_eg for k in ks),
                merge=BEST if changed else options.averaging,
                insert=inserted.get(x, NONE),
                mix_up=options.mix_up if x == mixed_up else 0,
                after=_after(options, x) if not changed else NONE,
                alignment=alignment,
            )
        )
        used += jobs
    if alignment < len(realigned):
        raise DataError(
            f"--realign-epochs='{options.realign_epochs}': too few iterations to realign {len(realigned)} times; "
            f"the last one begins at epoch {rows[-1].epoch:.1f}"
        )
    return rows


def _mix_up_iteration(options: TrainOptions, iterations: int, last_inserted: int, falling: int, total: int) -> int:
    """The iteration to mix up at, -1 for none. Raises DataError when it is not after the last added layer."""
    if not options.mix_up:
        return -1
    if options.mix_up_epoch < 0:
        x = (last_inserted + iterations * falling // total) // 2 + 1
    else:
        x = int(iterations * options.mix_up_epoch / (options.num_epochs + options.num_epochs_extra))
    if not last_inserted < x < iterations:
        raise DataError(
            f"--mix-up: iteration {x} of {iterations}, expected one after the last added layer and before the end, "
            f"{last_inserted + 1} to {iterations - 1}: give another --mix-up-epoch"
        )
    return x


def _realign_epochs(options: TrainOptions) -> list[float]:
    """The epochs to realign at. Raises DataError unless they are numbers in order, within the training."""
    total = options.num_epochs + options.num_epochs_extra
    try:
        epochs = [float(word) for word in options.realign_epochs.split()]
    except ValueError:
        epochs = [-1.0]
    if epochs != sorted(set(epochs)) or not all(0 < epoch < total for epoch in epochs):
        raise DataError(
            f"--realign-epochs='{options.realign_epochs}': expected increasing numbers between 0 and {total}"
        )
    return epochs


def _after(options: TrainOptions, x: int) -> str:
    """What a network of saturating neurons needs after an iteration: shrinking now and then, repairs else."""
    if not options.shrink_period:
        return NONE
    return SHRINK if x % options.shrink_period == 0 else FIX


def ages(rows: list[Row]) -> list[int]:
    """For each row, the iterations since the way to average began anew, it included; 0 where the best job is taken."""
    found, age, merge = [], 0, BEST
    for row in rows:
        if row.merge == BEST:
            age = 0
        else:
            age = 1 if row.reshapes or row.merge != merge else age + 1
        merge = row.merge
        found.append(age)
    return found


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
    return repr(float(f"{value:.10g}")) if isinstance(value, float) else str(value)


def read_plan(path: str) -> list[Row]:
    """The rows of a plan, edited by hand perhaps. Raises DataError with the line for anything that cannot be run."""
    lines = read_lines(path)
    found = lines[0].split("\t") if lines else []
    absent = [ABSENT.get(name) for name in COLUMNS[len(found) :]]
    if found != COLUMNS[: len(found)] or None in absent:
        raise DataError(f"{path}:1: expected the columns {' '.join(COLUMNS)}")
    rows = []
    for number, line in enumerate(lines[1:], 2):
        try:
            row = _parse(line.split("\t") + absent)
        except ValueError as error:
            raise DataError(f"{path}:{number}: {error}") from None
        if row.iteration != len(rows):
            raise DataError(f"{path}:{number}: expected iteration {len(rows)}, got {row.iteration}")
        before = rows[-1].alignment if rows else 0
        if not before <= row.alignment <= before + 1:
            raise DataError(
                f"{path}:{number}: alignment {row.alignment} after {before}; expected {before} or {before + 1}"
            )
        rows.append(row)
    if not rows:
        raise DataError(f"{path}: no iterations")
    return rows


def _parse(cells: list[str]) -> Row:
    if len(cells) != len(COLUMNS):
        raise ValueError(f"expected {len(COLUMNS)} columns separated by tabs, got {len(cells)}")
    iteration, epoch, jobs, rate, minibatch, archives, frames, merge, insert, mix_up, after, alignment = cells
    numbers = int(iteration), float(epoch), int(jobs), float(rate), int(minibatch)
    row = Row(*numbers, _ints(archives), _ints(frames), merge, insert, int(mix_up), after, int(alignment))
    if not row.jobs == len(row.archives) == len(row.frames) > 0:
        raise ValueError(f"{row.jobs} jobs, but {len(row.archives)} archives and {len(row.frames)} frames")
    for name, value, known in (("merge", merge, (*all_averaging(), BEST)), ("after", after, (FIX, SHRINK, NONE))):
        if value not in known:
            raise ValueError(f"{name} is '{value}', expected {', '.join(known[:-1])} or {known[-1]}")
    if row.mix_up < 0 or (row.mix_up and insert != NONE):
        raise ValueError(f"mix_up is {row.mix_up}; expected 0 where a layer is inserted, 0 or more elsewhere")
    if row.minibatch_size < 1 or not 0 < row.learning_rate < float("inf"):
        raise ValueError("expected a positive minibatch size and learning rate")
    return row


def _ints(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))
