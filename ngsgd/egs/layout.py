"""What is to be made of a data directory's training examples: held-out utterances, archives, sizes.

Writes into an examples directory, before any example is made:

    valid_uttlist, train_subset_uttlist     utterances held out, and as many of the training ones, for diagnostics
    lists/{valid,train_subset,train.J}.scp  the features of these, and of the training utterances of job J
    lists/num_jobs                          how many jobs, if there are fewer utterances than jobs asked for
    lists/{valid,train_subset}.keep         the proportion of their frames to make, enough for the subsets
    ali.ark, ali.scp                        the alignments, so that a job need read no more than its own
    info/{num_frames,num_archives,frames_per_eg,egs_per_archive,left_context,right_context,feat_dim,ivector_dim}
    egs.conf                                the resolved options; another run with others is refused

and for examples on the fly

    lists/{train.scp,train.num_frames}      features and lengths of all training utterances
    info/archives_per_group                 see `select_utterances`

What is chosen depends on the seed and the utterances, never on the number of jobs.
"""

import logging
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ngsgd.egs.size import ExampleSize, require_space, text_of
from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.kaldi_io.lists import read_lines, read_map
from ngsgd.kaldi_io.tables import SequentialReader, Writer, read_scp
from ngsgd.options import format_options, opt

log = logging.getLogger(__name__)


@dataclass
class LayoutOptions:
    """Sizes of the archives and of the subsets."""

    nj: int = opt(1, "jobs that will make examples, at most", at_least=1)
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
    on_the_fly: bool = opt(False, "plan for examples that each job makes for itself")
    mix_utterances: int = opt(
        1000, "on the fly: an archive is drawn from the frames of at least so many utterances", at_least=1
    )
    seed: int = opt(0, "seed of the choice of utterances")


@dataclass
class SelectOptions:
    """Which archive is made on the fly."""

    archive: int = opt(1, "number of the archive, from 1", at_least=1)
    frame: int = opt(0, "which labelled frame of its examples, from 0, is to be trained on", at_least=0)


@dataclass(frozen=True)
class Archives:
    """num_archives files of about egs_per_archive examples of up to frames_per_eg frames.

    On the fly, each per_group archives share the same utterances.
    """

    num_archives: int
    frames_per_eg: int
    egs_per_archive: int
    per_group: int


def plan_archives(num_frames: int, num_utterances: int, options: LayoutOptions) -> Archives:
    """How many archives of how long examples. A job's iteration is one frame of each example of one archive.

    As Kaldi's get_egs2.sh: archives = ⌊frames / (frames_per_eg · samples)⌋ + 1, and where that is one archive, the
    examples are shortened as long as an iteration still stays within `samples`. Unlike it, `samples` is first lowered
    on small data so that an epoch has at least `min_passes` jobs' iterations. On the fly there may be a few archives
    more, so that all groups have as many.
    """
    samples = min(options.samples_per_iter, max(1000, num_frames // options.min_passes))
    frames = options.frames_per_eg
    while frames > 1 and num_frames < (frames - 1) * samples:
        frames -= 1
    archives = num_frames // (frames * samples) + 1
    groups = min(archives, max(1, num_utterances // options.mix_utterances))
    per_group = -(-archives // groups)
    if options.on_the_fly:
        archives = per_group * -(-archives // per_group)
    return Archives(archives, frames, num_frames // (frames * archives), per_group)


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

    Only utterances with both features and an alignment count. Raises DataError when there are none, when
    `directory` was planned with other options, and when the examples would not fit on its disk.
    """
    where = Path(directory)
    where.mkdir(parents=True, exist_ok=True)
    refuse_changes(where / "egs.conf", options)
    feats = dict(read_scp(f"{data}/feats.scp"))
    lengths = _copy_alignments(alignment_rspecifier, feats, where)
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
    nj = min(options.nj, len(train))
    if nj < options.nj:
        log.warning("%d jobs for %d training utterances: running %d jobs", options.nj, len(train), nj)
    archives = plan_archives(num_frames, len(train), options)
    _check_space(where, {u: lengths[u] for u in train}, archives, options)
    _write_lists(where, feats, valid, subset, train, nj)
    if options.on_the_fly:
        _write_lines(where / "lists" / "train.scp", [f"{u} {feats[u]}" for u in train])
        _write_lines(where / "lists" / "train.num_frames", [f"{u} {lengths[u]}" for u in train])
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
    if options.on_the_fly:
        info["archives_per_group"] = archives.per_group
    (where / "info").mkdir(exist_ok=True)
    for name, value in info.items():
        _write_lines(where / "info" / name, [str(value)])
    _write_lines(where / "egs.conf", format_options(options).splitlines())
    log.info(
        "%d frames of %d utterances: %d archives of about %d examples of up to %d frames; %d utterances held out",
        *(num_frames, len(train), archives.num_archives, archives.egs_per_archive, archives.frames_per_eg, len(valid)),
    )
    return archives


def _copy_alignments(rspecifier: str, feats: Collection[str], where: Path) -> dict[str, int]:
    """Those of the utterances in `feats`, as ali.ark and ali.scp; returns their lengths."""
    lengths = {}
    with Writer(f"ark,scp:{where}/ali.ark,{where}/ali.scp", "int32_vector") as out:
        for key, alignment in SequentialReader(rspecifier, "int32_vector"):
            if key in feats:
                out.write(key, alignment)
                lengths[key] = len(alignment)
    return lengths


def _check_space(where: Path, train: dict[str, int], archives: Archives, options: LayoutOptions) -> None:
    """Say how large the examples will be; DataError when there is less room than those not there yet need.

    Unshuffled examples go when an archive of them has been shuffled: beside all there are as many as are at work.
    """
    shape = ExampleSize(
        archives.frames_per_eg, options.left_context, options.right_context, options.feat_dim, options.ivector_dim
    )
    total, number = shape.total(train), archives.num_archives
    if options.on_the_fly:
        log.info("no examples on disk: they would take about %s", text_of(total))
        return
    missing = sum(not (where / f"egs.{n + 1}.ark").exists() for n in range(number))
    if not missing:
        return
    at_once = min(missing, max(options.nj, os.cpu_count() or 1))
    aside = total * at_once // number
    log.info("the examples take about %s on disk, and %s more while they are made", text_of(total), text_of(aside))
    there = sum(path.stat().st_size for path in where.glob("egs_orig.*"))
    require_space(str(where), total * missing // number + aside - there)


def select_utterances(directory: str, options: SelectOptions) -> list[str]:
    """Lines of features (as in feats.scp) of the utterances that an archive is drawn from on the fly, in their order.

    The training utterances are divided at random into groups of about as many frames, one group for each so many
    archives as info/archives_per_group says, and archive k (from 1) takes its share of the examples of group
    ⌊(k − 1) / archives_per_group⌋. Another division for each frame of the examples that is trained on: other
    utterances meet in an archive then. Raises DataError when there are no such archive and frame.
    """
    sizes = {name: _info(directory, name) for name in ("num_archives", "frames_per_eg", "archives_per_group")}
    archive, frame = options.archive, options.frame
    if archive > sizes["num_archives"] or frame >= sizes["frames_per_eg"]:
        raise DataError(
            f"{directory} has archives 1 to {sizes['num_archives']} and frames 0 to {sizes['frames_per_eg'] - 1}, "
            f"asked for archive {archive}, frame {frame}"
        )
    seed = _options_in(Path(directory, "egs.conf").read_text())["--seed"]
    lengths = [int(number) for number in read_map(f"{directory}/lists/train.num_frames").values()]
    lines = read_lines(f"{directory}/lists/train.scp")
    groups = sizes["num_archives"] // sizes["archives_per_group"]
    order = np.random.default_rng([int(seed), frame]).permutation(len(lengths))
    middles = np.cumsum(np.array(lengths)[order]) - np.array(lengths)[order] / 2
    group_of = np.empty(len(order), np.int64)
    group_of[order] = np.minimum(middles * groups / sum(lengths), groups - 1).astype(np.int64)
    group = (archive - 1) // sizes["archives_per_group"]
    return [line for line, place in zip(lines, group_of) if place == group]


def _info(directory: str, name: str) -> int:
    try:
        return int(Path(directory, "info", name).read_text())
    except (OSError, ValueError):
        raise DataError(f"{directory}/info/{name}: expected a number, as make_egs.sh --on-the-fly writes") from None


def _write_lists(
    where: Path, feats: dict[str, str], valid: list[str], subset: list[str], train: list[str], nj: int
) -> None:
    (where / "lists").mkdir(parents=True, exist_ok=True)
    _write_lines(where / "valid_uttlist", valid)
    _write_lines(where / "train_subset_uttlist", subset)
    parts = {"valid": valid, "train_subset": subset}
    bounds = np.linspace(0, len(train), nj + 1).astype(int)
    parts |= {f"train.{job + 1}": train[bounds[job] : bounds[job + 1]] for job in range(nj)}
    _write_lines(where / "lists" / "num_jobs", [str(nj)])
    for name, utterances in parts.items():
        _write_lines(where / "lists" / f"{name}.scp", [f"{u} {feats[u]}" for u in utterances])


def _write_lines(path: Path, lines: list[str]) -> None:
    with open_text_writer(str(path)) as out:
        out.writelines(line + "\n" for line in lines)


def refuse_changes(path: Path, options: LayoutOptions) -> None:
    """DataError naming the options that differ from those recorded in `path`, if it exists; nj may differ."""
    if not path.exists():
        return
    # An option that is newer than the record was at its default.
    recorded = _options_in(format_options(LayoutOptions())) | _options_in(path.read_text())
    changed = [
        f"{name} was {recorded[name]}, now {value}"
        for name, value in _options_in(format_options(options)).items()
        if name != "--nj" and recorded[name] != value
    ]
    if changed:
        raise DataError(f"{path}: made with other options ({'; '.join(changed)}); remove {path.parent} to start anew")


def _options_in(text: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in text.split())
