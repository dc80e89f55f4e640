"""What a training needs before its first iteration: examples, input transform, configuration, model 0.

Each is made only where it is missing, so that an interrupted preparation goes on.
"""

import os
import shlex
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_bytes, open_bytes_writer, open_text_writer
from ngsgd.launch.client import Launcher
from ngsgd.options import flag_name
from ngsgd.train import programs
from ngsgd.train.options import DriverOptions, TrainOptions
from ngsgd.train.workdir import FEATURE_FILES, Workdir

DIAGNOSTIC_SETS = ("valid_diagnostic.egs", "train_diagnostic.egs")


@dataclass(frozen=True)
class Inputs:
    """The directories that a training is called with."""

    data: str
    lang: str
    ali: str

    def check(self) -> None:
        """Raise DataError naming the first file that is not there, or different phones in LANG and ALI."""
        need = [f"{self.data}/{name}" for name in ("feats.scp", "cmvn.scp", "utt2spk")]
        need += [f"{self.lang}/{name}" for name in ("topo", "phones.txt", "phones/silence.csl")]
        need += [f"{self.ali}/{name}" for name in ("final.mdl", "tree", "num_jobs", "ali.1.gz")]
        for path in need:
            if not os.path.isfile(path):
                raise DataError(f"no such file: {path}")
        theirs = Path(self.ali, "phones.txt")
        if theirs.exists() and theirs.read_bytes() != Path(self.lang, "phones.txt").read_bytes():
            raise DataError(
                f"{self.lang} and {self.ali} have different phones (phones.txt): align with this lang first"
            )

    def check_contents(self) -> None:
        """Raise DataError when files of ALI and LANG do not belong together, or some of the alignments are missing."""
        from ngsgd.hmm.topology import read_topology
        from ngsgd.hmm.transitions import read_transition_model
        from ngsgd.hmm.tree import read_tree

        for path in self._alignment_files():
            if not os.path.isfile(path):
                raise DataError(f"no such file: {path}; {self.ali}/num_jobs promises it: align again")
        model, tree = read_transition_model(f"{self.ali}/final.mdl"), read_tree(f"{self.ali}/tree")
        leaves = 1 + max(tree.to_pdf.multi_map({}))
        if leaves != model.num_pdfs:
            raise DataError(
                f"{self.ali}: the tree has {leaves} leaves, final.mdl {model.num_pdfs} pdfs, so they are not of one "
                "training: give the directory that the alignments were made in"
            )
        phones = read_topology(f"{self.lang}/topo").phones
        if phones != model.topology.phones:
            raise DataError(
                f"{self.lang}/topo has {len(phones)} phones, up to {phones[-1]}, and {self.ali}/final.mdl "
                f"{len(model.topology.phones)}, up to {model.topology.phones[-1]}: align with this lang first"
            )

    def _alignment_files(self) -> list[str]:
        jobs = Path(self.ali, "num_jobs").read_text().strip()
        if not jobs.isdecimal() or not int(jobs):
            raise DataError(f"{self.ali}/num_jobs: expected a number, got '{jobs}'")
        return [f"{self.ali}/ali.{job}.gz" for job in range(1, int(jobs) + 1)]

    @property
    def contents(self) -> str:
        """In a few words that change when the alignments' model or tree does."""
        return " ".join(f"{name} {zlib.crc32(Path(self.ali, name).read_bytes()):08x}" for name in ("final.mdl", "tree"))

    def alignments(self) -> str:
        """The table of all alignments."""
        return f"ark:gunzip -c {shlex.join(self._alignment_files())} |"


@dataclass(frozen=True)
class Examples:
    """The sizes of a directory of examples, ours or Kaldi's."""

    directory: str
    num_archives: int
    frames_per_eg: int
    left_context: int
    right_context: int
    feat_dim: int
    ivector_dim: int

    @classmethod
    def read(cls, directory: str) -> "Examples":
        """From DIR/info, the feature dimension from an example where it is not there. Raises DataError."""
        info = {name: _number(directory, name) for name in ("num_archives", "frames_per_eg")}
        info |= {name: _number(directory, name) for name in ("left_context", "right_context", "ivector_dim")}
        for path in _example_files(directory, info["num_archives"]):
            if not os.path.isfile(path):
                raise DataError(f"no such file: {path}")
        if os.path.exists(f"{directory}/info/feat_dim"):
            return cls(directory, feat_dim=_number(directory, "feat_dim"), **info)
        from ngsgd.egs.archive import read_archive

        dim = read_archive(f"ark:{directory}/valid_diagnostic.egs").shape.feat_dim
        return cls(directory, feat_dim=dim, **info)

    @property
    def contents(self) -> str:
        """In a few words that change when the examples do, without reading them."""
        size = sum(map(os.path.getsize, _example_files(self.directory, self.num_archives)))
        return (
            f"{self.num_archives} archives of {self.frames_per_eg} frames, context {self.left_context} and "
            f"{self.right_context}, dimension {self.feat_dim} and {self.ivector_dim}, {size} bytes"
        )

    def check(self, options: TrainOptions, ali: str) -> None:
        """Raise DataError when the network would look at frames that the examples do not have.

        And when they are labelled by another tree than that of the directory `ali`.
        """
        for name, wanted in zip(("left_context", "right_context"), options.context):
            if wanted > getattr(self, name):
                flag = "--splice-indexes" if options.splice_indexes else f"--{flag_name(name)}"
                raise DataError(
                    f"{self.directory} has examples with a {name.replace('_', ' ')} of {getattr(self, name)} frames, "
                    f"the network wants {wanted}: give {flag} or make new examples"
                )
        self._check_labels(ali)

    def _check_labels(self, ali: str) -> None:
        advice = f"make new examples with the alignments of {ali}, or give their own directory of alignments"
        theirs = Path(self.directory, "tree")
        if theirs.exists():
            if theirs.read_bytes() != Path(ali, "tree").read_bytes():
                raise DataError(f"{self.directory} has examples of another tree than {ali}/tree: {advice}")
            return
        from ngsgd.egs.archive import read_archive
        from ngsgd.hmm.transitions import read_transition_model

        number = read_transition_model(f"{ali}/final.mdl").num_pdfs
        highest = max(read_archive(f"ark:{self.directory}/{name}").pdf.max() for name in DIAGNOSTIC_SETS)
        if highest >= number:
            raise DataError(
                f"{self.directory} has examples of pdf {highest}, {ali}/final.mdl has {number} pdfs: {advice}"
            )


def _example_files(directory: str, num_archives: int) -> list[str]:
    """The examples' files that a training needs; without the archives where each job makes its own."""
    archives = [] if programs.archive_maker(directory) else [f"egs.{k}.ark" for k in range(1, num_archives + 1)]
    return [f"{directory}/{name}" for name in (*DIAGNOSTIC_SETS, "combine.egs", *archives)]


def _number(directory: str, name: str) -> int:
    path = Path(directory, "info", name)
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; expected a directory of examples made by make_egs.sh") from None
    if not text.isdecimal():
        raise DataError(f"{path}: expected a number, got '{text}'")
    return int(text)


def make_examples(
    work: Workdir, inputs: Inputs, options: TrainOptions, how: DriverOptions, launcher: Launcher
) -> Examples:
    """The examples to train on: made in DIR/egs, or somebody's in --egs-dir."""
    directory = how.egs_dir or work.file("egs")
    if not how.egs_dir:
        names = ("samples_per_iter", "min_passes", "num_utts_subset", "frames_per_eg", "seed")
        sizes = [word for name in names for word in (f"--{flag_name(name)}", str(getattr(options, name)))]
        sizes += ["--on-the-fly", str(options.egs_on_the_fly).lower(), *_contexts(*options.context)]
        extra = ["--cmd", how.cmd, "--nj", str(how.nj), *_transforms(options), *shlex.split(options.egs_opts)]
        launcher.run_script(["make_egs.sh", *extra, *sizes, inputs.data, inputs.ali, directory], f"{directory}/log")
    examples = Examples.read(directory)
    examples.check(options, inputs.ali)
    return examples


def _transforms(options: TrainOptions) -> list[str]:
    return ["--transform-dir", options.transform_dir] if options.transform_dir else []


def _contexts(left: int, right: int) -> list[str]:
    return ["--left-context", str(left), "--right-context", str(right)]


def make_input_transform(
    work: Workdir, inputs: Inputs, examples: Examples, options: TrainOptions, how: DriverOptions, launcher: Launcher
) -> None:
    """lda.mat, unless the examples have i-vectors, which it would have to see."""
    if examples.ivector_dim or work.has("lda.mat"):
        return
    first = options.contexts[0]
    words = ["get_lda.sh", "--cmd", how.cmd, "--nj", str(how.nj), *_transforms(options)]
    words += _contexts(-first[0], first[-1])
    words += [inputs.data, inputs.lang, inputs.ali, examples.directory, str(work.path)]
    launcher.run_script(words, work.file("log"))


def make_model_0(
    work: Workdir, inputs: Inputs, examples: Examples, options: TrainOptions, learning_rate: float, launcher: Launcher
) -> None:
    """Configuration, initial parameters, transitions and priors from the alignments: 0.mdl and layers to be added."""
    # Kaldi's examples do not say how their features were made; its alignments do.
    features = examples.directory if os.path.exists(f"{examples.directory}/feat_type") else inputs.ali
    for name in FEATURE_FILES:
        _copy(f"{features}/{name}", work.file(name))
    if features == inputs.ali and all(os.path.exists(f"{inputs.ali}/{name}") for name in ("final.mat", "trans.1")):
        with open_text_writer(work.file("speaker_transforms")) as out:
            out.write("true\n")
    _copy(f"{inputs.ali}/tree", work.file("tree"))
    _copy(f"{inputs.lang}/phones.txt", work.file("phones.txt"))
    if work.models():
        return
    from ngsgd.hmm.transitions import read_transition_model

    model, scales = f"{inputs.ali}/final.mdl", ""
    if options.presoftmax_prior_scale_power:
        scales = work.file("prior_scales")
        words = programs.prior_scales(model, inputs.alignments(), options.presoftmax_prior_scale_power, scales)
        launcher.run("scaling the output layer", work.log("prior_scales"), words, scales)
    config, hidden = work.file("nnet.config"), [work.file(name) for name in dict.fromkeys(options.layer_configs)]
    given = {
        "feat_dim": examples.feat_dim,
        "ivector_dim": examples.ivector_dim,
        "num_targets": read_transition_model(model).num_pdfs,
        "lda_matrix": work.file("lda.mat") if work.has("lda.mat") else "",
        "presoftmax_scales": scales,
        "learning_rate": learning_rate,
    }
    words = programs.make_config(options, given, config, hidden)
    launcher.run("configuring the network", work.log("make_config"), words, (hidden or [config])[-1])
    words = programs.init(config, model, inputs.alignments(), options.seed, work.model(0))
    launcher.run("initialising the network", work.log("init"), words, work.model(0))


def _copy(source: str, target: str) -> None:
    """Copy a file, whole or not at all; nothing where there is none or it has been copied before."""
    if not os.path.exists(source) or os.path.exists(target):
        return
    with open_bytes(source) as stream, open_bytes_writer(target) as out:
        shutil.copyfileobj(stream, out)
