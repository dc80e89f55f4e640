"""Copying archives of examples: in another order, in parts, one frame of each, narrower."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from ngsgd.egs.archive import read_archive, write_archive
from ngsgd.egs.example import NnetExample
from ngsgd.errors import DataError
from ngsgd.kaldi_io.tables import SequentialReader, Writer, parse_specifier
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclass
class CopyEgsOptions:
    """What of each example is copied."""

    frame: str = opt("", "copy only this labelled frame, from 0, or `random`; examples without it are left out")
    left_context: int = opt(-1, "narrow the left context to this many frames")
    right_context: int = opt(-1, "narrow the right context to this many frames")
    seed: int = opt(0, "seed of --frame=random")

    def frame_index(self) -> int | None:
        """The frame, or None for `random` and for no choice. DataError for anything else."""
        if self.frame in ("", "random"):
            return None
        if not self.frame.isdigit():
            raise DataError(f"--frame: expected a number from 0 or `random`, got '{self.frame}'")
        return int(self.frame)


@dataclass
class ShuffleEgsOptions:
    """The order of a shuffled archive."""

    seed: int = opt(0, "seed of the order")
    sort: bool = opt(False, "sort by key first, so that the order does not depend on that of the input")


@dataclass
class SubsetEgsOptions:
    """How many examples are drawn."""

    n: int = opt(1000, "examples for the first output")
    n_second: int = opt(0, "examples for the second output, disjoint from the first; 0: as many as for the first")
    seed: int = opt(0, "seed of the choice")


def copy_egs(rspecifier: str, wspecifiers: list[str] | tuple[str, ...], options: CopyEgsOptions) -> int:
    """Copies examples to the outputs in turn; returns how many. Unchanged ones keep their bytes.

    Raises DataError for damage and when nothing was written.
    """
    index = options.frame_index()
    rng = np.random.default_rng(options.seed)
    count = 0
    with ExitStack() as stack:
        outputs = [stack.enter_context(Writer(w, "nnet_example")) for w in wspecifiers]
        for key, example in SequentialReader(rspecifier, "nnet_example"):
            frame = int(rng.integers(example.num_frames)) if options.frame == "random" else index
            part = _part(example, frame, options)
            if part is not None:
                outputs[count % len(outputs)].write(key, part)
                count += 1
        if not count:
            raise DataError(f"{rspecifier}: no example to copy" + (f" has a frame {index}" if index else ""))
    log.info("copied %d examples", count)
    return count


def _part(example: NnetExample, frame: int | None, options: CopyEgsOptions) -> NnetExample | None:
    first, count = (0, example.num_frames) if frame is None else (frame, 1)
    if first >= example.num_frames:
        return None
    left = options.left_context if options.left_context >= 0 else example.left_context
    right = options.right_context if options.right_context >= 0 else example.right_context
    return example.part(first, count, left, right)


def _require_archive(wspecifier: str) -> str:
    """The wxfilename of a binary `ark:` output."""
    specifier = parse_specifier(wspecifier)
    if specifier.form != "ark" or "t" in specifier.flags:
        raise DataError(f"expected a binary output like 'ark:FILE', got '{wspecifier}'")
    return specifier.path


def shuffle_egs(rspecifier: str, wspecifier: str, options: ShuffleEgsOptions) -> int:
    """Copies an archive, all of it in memory, in an order drawn by the seed; returns the number of examples.

    Like Kaldi's nnet-shuffle-egs, with another generator.
    """
    target = _require_archive(wspecifier)
    archive = read_archive(rspecifier)
    order = np.arange(len(archive))
    if options.sort:
        order = np.array(sorted(order, key=lambda e: archive.key(e).encode()))
    order = order[np.random.default_rng(options.seed).permutation(len(order))]
    count = write_archive(target, archive, order)
    log.info("shuffled %d examples", count)
    return count


def subset_egs(rspecifier: str, wspecifiers: list[str] | tuple[str, ...], options: SubsetEgsOptions) -> list[int]:
    """Draws n examples at random, in random order, and for a second output others; returns how many each got.

    Where there are not enough for both, each gets its share of what there is (at least one). Like Kaldi's
    nnet-subset-egs, with another generator.
    """
    targets = [_require_archive(w) for w in wspecifiers]
    if len(targets) > 2:
        raise DataError(f"expected one or two outputs, got {len(targets)}")
    wanted = [options.n, options.n_second or options.n][: len(targets)]
    if min(wanted) < 1:
        raise DataError(f"expected a positive number of examples, got {min(wanted)}")
    archive = read_archive(rspecifier)
    counts = _shares(len(archive), wanted)
    if counts != wanted:
        log.warning("%s: %d examples there, so %s instead of %s", rspecifier, len(archive), counts, wanted)
    order = iter(np.random.default_rng(options.seed).permutation(len(archive)))
    for target, count in zip(targets, counts):
        write_archive(target, archive, _take(order, count))
    return counts


def _shares(available: int, wanted: list[int]) -> list[int]:
    """As many as wanted, or in proportion when there are fewer."""
    if available >= sum(wanted):
        return wanted
    if available < len(wanted):
        raise DataError(f"{available} examples cannot be split into {len(wanted)} parts")
    first = min(available - (len(wanted) - 1), max(1, available * wanted[0] // sum(wanted)))
    return [first, available - first][: len(wanted)]


def _take(order: Iterator[int], count: int) -> Iterator[int]:
    for _ in range(count):
        yield next(order)


def describe(rspecifier: str) -> str:
    """Sizes of an archive, one `name value` a line."""
    archive = read_archive(rspecifier)
    shape = archive.shape
    rows = {
        "examples": len(archive),
        "frames": archive.num_frames,
        "frames_per_eg": int(np.diff(archive.frame_offset).max()),
        "left_context": shape.left_context,
        "right_context": shape.right_context,
        "feat_dim": shape.feat_dim,
        "ivector_dim": shape.ivector_dim,
        "labels": len(archive.pdf),
        "lowest_pdf": int(archive.pdf.min()) if len(archive.pdf) else -1,
        "highest_pdf": int(archive.pdf.max()) if len(archive.pdf) else -1,
    }
    return "".join(f"{name} {value}\n" for name, value in rows.items())
