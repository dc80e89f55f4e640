"""The command lines of the programs that a training calls, one function each."""

import dataclasses
import os
import shlex

from ngsgd.nnet.averaging.rule import AveragingOptions
from ngsgd.nnet.network import NetworkOptions
from ngsgd.options import flag_name
from ngsgd.train.options import DriverOptions, TrainOptions
from ngsgd.train.plan import Row


def compute_prob(model: str, egs: str, stats: str) -> list[str]:
    """Log-prob and accuracy of a model on examples, into a JSON file."""
    return ["nnet-compute-prob", f"--stats-out={stats}", model, f"ark:{egs}"]


def show_change(old: str, new: str, stats: str) -> list[str]:
    """How far each layer moved from one model to another, into a JSON file."""
    return ["nnet-show-progress", f"--stats-out={stats}", old, new]


def describe(model: str, output: str) -> list[str]:
    """What a model consists of, as text."""
    return ["nnet-info", f"--text-out={output}", model]


def train_options(row: Row, job: int, options: TrainOptions, how: DriverOptions) -> str:
    """The configuration file of job `job` (from 1) of an iteration, but for its stats-out."""
    return (
        f"--minibatch-size={row.minibatch_size}\n"
        f"--frame={row.frames[job - 1]}\n"
        f"--shuffle=true\n"
        f"--srand={options.seed},{row.iteration},{job}\n"
        f"--device={how.device}\n"
    )


def archive_maker(egs: str) -> str:
    """The script that writes an archive of the examples in `egs` when one is read; "" where they are files."""
    path = f"{egs}/archive.sh"
    return path if os.path.exists(path) else ""


def make_archive(maker: str, archive: int, frame: int) -> str:
    """The command that writes an archive, to be trained on at one frame of its examples, to standard output."""
    return f"bash {shlex.quote(maker)} {archive} {frame}"


def train(config: str, model: str, egs: str, stats: str, output: str) -> list[str]:
    """One job of an iteration; JOB stands for its number."""
    return ["nnet-train-ngsgd", f"--config={config}", f"--stats-out={stats}", model, f"ark:{egs}", output]


def insert_layer(model: str, config: str, at: int, seed: int, learning_rate: float, output: str) -> list[str]:
    """New components, initialised from `seed`, in front of component `at`; all layers with the learning rate."""
    init = ["nnet-init", f"--srand={seed}", config, "-"]
    insert = ["nnet-insert", f"--insert-at={at}", f"--srand={seed}", model, "-", "-"]
    return [*init, "|", *insert, "|", *set_learning_rate("-", learning_rate, output)]


def average(
    models: list[str], learning_rate: float, way: AveragingOptions, history: dict[str, object], output: str
) -> list[str]:
    """One model of the jobs', with this learning rate; history: nnet-average's options of the iterations before."""
    values = {f.name: getattr(way, f.name) for f in dataclasses.fields(way) if getattr(way, f.name) != f.default}
    words = [f"--{flag_name(name)}={value}" for name, value in (values | history).items()]
    return ["nnet-average", f"--learning-rate={learning_rate!r}", *words, *models, output]


def mix_up(model: str, num_mixtures: int, seed: int, learning_rate: float, output: str) -> list[str]:
    """More softmax outputs; all layers with the learning rate."""
    words = ["nnet-mixup", f"--num-mixtures={num_mixtures}", f"--srand={seed}", model, "-"]
    return [*words, "|", *set_learning_rate("-", learning_rate, output)]


def fix(model: str, output: str) -> list[str]:
    """Neurons repaired."""
    return ["nnet-fix", model, output]


SHRINK_EXAMPLES = 2000
SHRINK_EVALUATIONS = 10


def shrink(model: str, egs: str, seed: int, output: str) -> list[str]:
    """A factor for each layer, fitted to some of the combination's examples, if that is better on held-out ones."""
    subset = f"egs-subset --n={SHRINK_EXAMPLES} --seed={seed} ark:{shlex.quote(egs)}/combine.egs ark:- |"
    return ["nnet-combine", f"--num-lbfgs-iters={SHRINK_EVALUATIONS}", model, f"ark:{subset}", _held_out(egs), output]


def set_learning_rate(model: str, learning_rate: float, output: str) -> list[str]:
    """A copy of a model with the learning rate of all its layers set."""
    return ["nnet-copy", f"--learning-rate={learning_rate!r}", model, output]


def combine(models: list[str], egs: str, fit: bool, stats: str, output: str) -> list[str]:
    """The best on held-out frames of models and averages; with `fit`, of weighted combinations too.

    stats: the JSON file for all candidates.
    """
    iterations = [] if fit else ["--num-lbfgs-iters=0"]
    options = [*iterations, f"--stats-out={stats}"]
    return ["nnet-combine", *options, *models, f"ark:{egs}/combine.egs", _held_out(egs), output]


def _held_out(egs: str) -> str:
    """The held-out examples that choose; Kaldi's directories have no second set of them."""
    name = next(f for f in ("valid_combine.egs", "valid_diagnostic.egs") if os.path.exists(f"{egs}/{f}"))
    return f"ark:{egs}/{name}"


PRIOR_EXAMPLES = 10000  # of the first archive, several frames each


def adjust_priors(model: str, egs: str, seed: int, output: str) -> list[str]:
    """Priors from the mean posterior of typical training frames."""
    maker = archive_maker(egs)
    first = shlex.quote(f"ark:{make_archive(maker, 1, 0)} |" if maker else f"ark:{egs}/egs.1.ark")
    subset = f"egs-subset --n={PRIOR_EXAMPLES} --seed={seed} {first} ark:- |"
    return ["nnet-adjust-priors", model, f"ark:{subset}", output]


def prior_scales(model: str, alignments: str, power: float, output: str) -> list[str]:
    """Fixed scales of the output layer."""
    return ["nnet-prior-scales", f"--power={power!r}", model, alignments, output]


def make_config(options: TrainOptions, given: dict[str, object], config: str, hidden: list[str]) -> list[str]:
    """The configurations of the network as it starts, with one hidden layer, and of those to be added."""
    names = [f.name for f in dataclasses.fields(NetworkOptions) if hasattr(options, f.name)]
    values = {name: getattr(options, name) for name in names} | given
    return ["nnet-make-config", *(f"--{flag_name(name)}={value}" for name, value in values.items()), config, *hidden]


def init(config: str, model: str, alignments: str, seed: int, output: str) -> list[str]:
    """A model of initial parameters, with the transition model of `model`, trained on the alignments."""
    raw = ["nnet-init", f"--srand={seed}", config, "-"]
    return [*raw, "|", "nnet-am-init", model, "-", "-", "|", "nnet-train-transitions", "-", alignments, output]
