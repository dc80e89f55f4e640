"""What is to be made of a data directory's training examples: held-out utterances, archives, sizes.

Writes into an examples directory, before any example is made:

    valid_uttlist, train_subset_uttlist     utterances held out, and as many of the training ones, for diagnostics
    lists/{valid,train_subset,train.J}.scp  the features of these, and of the training utterances of job J
    lists/{valid,train_subset}.keep         the proportion of their frames to make, enough for the subsets
    info/{num_frames,num_archives,frames_per_eg,egs_per_archive,left_context,right_context,feat_dim,ivector_dim}
    egs.conf                                the resolved options; another run with others is refused

What is chosen depends on the seed and the utterances, never on the number of jobs.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.kaldi_io.lists import read_map
from ngsgd.kaldi_io.tables import SequentialReader, read_scp
from ngsgd.options import format_options, opt

log = logging.getLogger(__name__)


@dataclass
class LayoutOptions:
    """Sizes of the archives and of the subsets."""

    nj: int = opt(1, "jobs that will make examples")
    left_context: int = opt(4, "frames of left context, recorded for the reader")
    right_context: int = opt(4, "frames of right context, recorded for the reader")
    feat_dim: int = opt(0, "dimension of the features, recorded for the reader")
    ivector_dim: int = opt(0, "dimension of the i-vectors, recorded for the reader")
    frames_per_eg: int = opt(8, "labelled frames of an example, at most")
    samples_per_iter: int = opt(400000, "frames that one job sees in one iteration, at most")
    min_passes: int = opt(16, "lower samples-per-iter, but not under 1000, until an epoch is so many jobs' iterations")
    num_utts_subset: int = opt(300, "utterances held out, and training utterances for diagnostics; at most a tenth")
    num_frames_diagnostic: int = opt(4000, "frames of each diagnostic set")
    num_frames_combine: int = opt(10000, "frames of each set for combining models")
    seed: int = opt(0, "seed of the choice of utterances")


@dataclass(frozen=True)
class Archives:
    """num_archives files of about egs_per_archive examples of up to frames_per_eg frames."""

    num_archives: int
    frames_per_eg: int
    egs_per_archive: int


def plan_archives(num_frames: int, options: LayoutOptions) -> Archives:
    """How many archives of how long examples. A job's iteration is one frame of each example of one archive.

    As Kaldi's get_egs2.sh: archives = ⌊frames / (frames_per_eg · samples)⌋ + 1, and where that is one archive, the
    examples are shortened as long as an iteration still stays within `samples`. Unlike it, `samples` is first lowered
    on small data so that an epoch has at least `min_passes` jobs' iterations.
    """
    samples = min(options.samples_per_iter, max(1000, num_frames // options.min_passes))
    frames = options.frames_per_eg
    while frames > 1 and num_frames < (frames - 1) * samples:
        frames -= 1
    archives = num_frames // (frames * samples) + 1
    return Archives(archives, frames, num_frames // (frames * archives))


def choose_subsets(
    utterances: Sequence[str], num_subset: int, seed: int, utt2uniq: dict[str, str] | None = None
) -> tuple[list[str], list[str]]:
    """Utterances held out for validation, and as many of the others for diagnostics on training data; both sorted.

    At most a tenth of all are held out, at least one. With `utt2uniq` (utterance -> original) all versions of an
    original go together and count as so many: in random order those that fit in, or one that has the fewest. Speakers
    are shared with training, as in Kaldi: validation is for the learning curve, not a test. Raises DataError below two
    utterances, and when all are versions of one.
    """
    if len(utterances) < 2:
        raise DataError(f"training needs at least 2 utterances to hold one out, found {len(utterances)}")
    number = max(1, min(num_subset, len(utterances) // 10))
    ordered = sorted(utterances, key=str.encode)
    order = [ordered[i] for i in np.random.default_rng(seed).permutation(len(ordered))]
    versions: dict[str, list[str]] = {}
    for utterance in order:
        versions.setdefault((utt2uniq or {}).get(utterance, utterance), []).append(utterance)
    if len(versions) < 2:
        raise DataError(f"all utterances are versions of one, '{next(iter(versions))}': no other to train on")
    valid: list[str] = []
    for together in versions.values():
        if len(valid) + len(together) <= number:
            valid += together
    valid = valid or min(versions.values(), key=len)
    if number < num_subset:
        log.warning(
            "%d utterances in all: %d held out for validation instead of %d", len(utterances), len(valid), num_subset
        )
    held_out = set(valid)
    rest = [u for u in order if u not in held_out]
    return sorted(valid, key=str.encode), sorted(rest[:number], key=str.encode)


def write_layout(data: str, alignment_rspecifier: str, directory: str, options: LayoutOptions) -> Archives:
    """Plan the examples of the data directory `data` and write the files named above into `directory`.

    Only utterances with both features and an alignment count. Raises DataError when there are none, and when
    `directory` was planned with other options.
    """
    where = Path(directory)
    refuse_changes(where / "egs.conf", options)
    feats = dict(read_scp(f"{data}/feats.scp"))
    lengths = {key: len(ali) for key, ali in SequentialReader(alignment_rspecifier, "int32_vector") if key in feats}
    if not lengths:
        raise DataError(f"{data}/feats.scp: no utterance of it has an alignment in {alignment_rspecifier}")
    if len(lengths) < len(feats):
        log.warning("%d of %d utterances have no alignment", len(feats) - len(lengths), len(feats))
    uniq = Path(data, "utt2uniq")
    valid, subset = choose_subsets(
        list(lengths), options.num_utts_subset, options.seed, read_map(str(uniq)) if uniq.exists() else None
    )
    held_out = set(valid)
    train = [u for u in feats if u in lengths and u not in held_out]
    num_frames = sum(lengths[u] for u in train)
    archives = plan_archives(num_frames, options)
    _write_lists(where, feats, valid, subset, train, options.nj)
    wanted = 1.2 * (options.num_frames_diagnostic + options.num_frames_combine) + 100
    for name, utterances in (("valid", valid), ("train_subset", subset)):
        keep = min(1.0, wanted / max(1, sum(lengths[u] for u in utterances)))
        _write_lines(where / "lists" / f"{name}.keep", [f"{keep:.4f}"])
    info = {
        "num_frames": num_frames,
        "num_archives": archives.num_archives,
        "frames_per_eg": archives.frames_per_eg,
        "egs_per_archive": archives.egs_per_archive,
        "left_context": options.left_context,
        "right_context": options.right_context,
        "feat_dim": options.feat_dim,
        "ivector_dim": options.ivector_dim,
    }
    (where / "info").mkdir(exist_ok=True)
    for name, value in info.items():
        _write_lines(where / "info" / name, [str(value)])
    _write_lines(where / "egs.conf", format_options(options).splitlines())
    log.info(
        "%d frames of %d utterances: %d archives of about %d examples of up to %d frames; %d utterances held out",
        num_frames,
        len(train),
        *_values(archives),
        len(valid),
    )
    return archives


def _values(archives: Archives) -> tuple[int, int, int]:
    return archives.num_archives, archives.egs_per_archive, archives.frames_per_eg


def _write_lists(
    where: Path, feats: dict[str, str], valid: list[str], subset: list[str], train: list[str], nj: int
) -> None:
    if not 1 <= nj <= len(train):
        raise DataError(f"{nj} jobs for {len(train)} training utterances: give --nj between 1 and that")
    (where / "lists").mkdir(parents=True, exist_ok=True)
    _write_lines(where / "valid_uttlist", valid)
    _write_lines(where / "train_subset_uttlist", subset)
    parts = {"valid": valid, "train_subset": subset}
    bounds = np.linspace(0, len(train), nj + 1).astype(int)
    parts |= {f"train.{job + 1}": train[bounds[job] : bounds[job + 1]] for job in range(nj)}
    for name, utterances in parts.items():
        _write_lines(where / "lists" / f"{name}.scp", [f"{u} {feats[u]}" for u in utterances])


def _write_lines(path: Path, lines: list[str]) -> None:
    with open_text_writer(str(path)) as out:
        out.writelines(line + "\n" for line in lines)


def refuse_changes(path: Path, options: LayoutOptions) -> None:
    """DataError naming the options that differ from those recorded in `path`, if it exists; nj may differ."""
    if not path.exists():
        return
    recorded, wanted = (
        dict(line.partition("=")[::2] for line in text.split()) for text in (path.read_text(), format_options(options))
    )
    changed = [
        f"{name} was {recorded.get(name)}, now {value}"
        for name, value in wanted.items()
        if name != "--nj" and recorded.get(name) != value
    ]
    if changed:
        raise DataError(f"{path}: made with other options ({'; '.join(changed)}); remove {path.parent} to start anew")
