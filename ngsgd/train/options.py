"""Options of steps/train_ngsgd.py: what is computed, and how it is run."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from ngsgd.egs.layout import LayoutOptions
from ngsgd.errors import DataError
from ngsgd.nnet.averaging.rule import AveragingOptions, averaging_class
from ngsgd.nnet.network import NetworkOptions, contexts
from ngsgd.options import flag_name, opt


def same_as(options_class: type, name: str) -> Any:
    """The field `name` of another options class: its default and help, declared there."""
    field = options_class.__dataclass_fields__[name]
    return dataclasses.field(default=field.default, metadata=field.metadata)


@dataclass
class TrainOptions:
    """What is computed: any change of these is another model. Recorded in DIR/train.conf."""

    # The schedule (plan.py)
    num_epochs: int = opt(8, "passes over the data while the learning rate falls")
    num_epochs_extra: int = opt(2, "further passes at the final learning rate")
    num_jobs_initial: int = opt(4, "jobs of the first iteration")
    num_jobs_final: int = opt(4, "jobs of the last iteration; the number changes evenly in between")
    initial_effective_lrate: float = opt(0.005, "learning rate at first, per job: a job's own is this x jobs")
    final_effective_lrate: float = opt(0.0005, "learning rate reached after --num-epochs, per job")
    minibatch_size: int = opt(128, "frames of a minibatch; half of it right after a layer is added")
    add_layers_period: int = opt(2, "iterations between one added hidden layer and the next")
    averaging: str = same_as(AveragingOptions, "averaging")
    averaging_momentum: float = same_as(AveragingOptions, "averaging_momentum")
    averaging_rate: float = same_as(AveragingOptions, "averaging_rate")
    averaging_window: int = same_as(AveragingOptions, "averaging_window")
    mix_up: int = opt(0, "softmax outputs in all, more than there are pdfs, from half-way on; 0: one for each pdf")
    mix_up_epoch: float = opt(-1.0, "mix up there instead")
    realign_epochs: str = opt("", "realign the training data with the network at these epochs, '2 4' for example")
    shrink_interval: int = opt(
        -1,
        "iterations between shrinking the layers, other iterations repair neurons; 0: neither; "
        "default: 5 in tanh networks, 0 in others",
    )
    seed: int = opt(0, "seed of all random numbers")
    # The examples (ngsgd/egs)
    samples_per_iter: int = same_as(LayoutOptions, "samples_per_iter")
    min_passes: int = same_as(LayoutOptions, "min_passes")
    num_utts_subset: int = same_as(LayoutOptions, "num_utts_subset")
    frames_per_eg: int = same_as(LayoutOptions, "frames_per_eg")
    egs_on_the_fly: bool = opt(
        False, "keep no examples on disk: each job makes its own from features and alignments, which takes it longer"
    )
    egs_opts: str = opt("", "further options of make_egs.sh, e.g. '--delta-order 2 --cmvn-opts --norm-vars=true'")
    transform_dir: str = opt(
        "", "fMLLR transforms of the speakers; none: those of ALI_DIR, if it has final.mat and trans.1"
    )
    left_context: int = same_as(NetworkOptions, "left_context")
    right_context: int = same_as(NetworkOptions, "right_context")
    splice_indexes: str = same_as(NetworkOptions, "splice_indexes")
    # The network (ngsgd/nnet/network.py)
    hidden_layers: int = same_as(NetworkOptions, "hidden_layers")
    nonlinearity: str = same_as(NetworkOptions, "nonlinearity")
    pnorm_input_dim: int = same_as(NetworkOptions, "pnorm_input_dim")
    pnorm_output_dim: int = same_as(NetworkOptions, "pnorm_output_dim")
    hidden_dim: int = same_as(NetworkOptions, "hidden_dim")
    param_stddev_factor: float = same_as(NetworkOptions, "param_stddev_factor")
    bias_stddev: float = same_as(NetworkOptions, "bias_stddev")
    presoftmax_prior_scale_power: float = opt(-0.25, "scale the output layer by the priors to this power; 0: do not")
    update_rule: str = same_as(NetworkOptions, "update_rule")
    alpha: float = same_as(NetworkOptions, "alpha")
    num_samples_history: float = same_as(NetworkOptions, "num_samples_history")
    update_period: int = same_as(NetworkOptions, "update_period")
    rank_in: int = same_as(NetworkOptions, "rank_in")
    rank_out: int = same_as(NetworkOptions, "rank_out")
    max_change_per_sample: float = same_as(NetworkOptions, "max_change_per_sample")
    max_change: float = same_as(NetworkOptions, "max_change")
    # The final model (final.py)
    final: str = opt(
        "combine",
        "last: the last iteration's model; choose: the best on held-out frames of single models and averages; "
        "combine: the same, and a combination of models weighted on the combine subset",
        choices=("last", "choose", "combine"),
    )
    max_models_combine: int = opt(20, "combinations and averages are of at most so many models")
    early_stop_epochs: float = opt(0.0, "stop when held-out log-prob is no better than so many epochs ago; 0: no")

    def ways(self) -> AveragingOptions:
        """The options of averaging alone."""
        return AveragingOptions(**{name: getattr(self, name) for name in AveragingOptions.__dataclass_fields__})

    @property
    def shrink_period(self) -> int:
        """--shrink-interval, or its default; 0 for never."""
        if self.shrink_interval >= 0:
            return self.shrink_interval
        return 5 if self.nonlinearity == "tanh" else 0

    @property
    def contexts(self) -> list[tuple[int, ...]]:
        """For each hidden layer, the frames that it sees."""
        return contexts(self.splice_indexes, self.left_context, self.right_context, self.hidden_layers)

    @property
    def context(self) -> tuple[int, int]:
        """Frames before and after that the network sees."""
        return -sum(frames[0] for frames in self.contexts), sum(frames[-1] for frames in self.contexts)

    @property
    def layer_configs(self) -> list[str]:
        """For each hidden layer after the first, the file with its configuration; one file if they are all alike."""
        if set(self.contexts[1:]) <= {(0,)}:
            return ["hidden.config"] * (self.hidden_layers - 1)
        return [f"hidden.{layer}.config" for layer in range(1, self.hidden_layers)]

    def check(self) -> None:
        """Raise DataError for values that cannot be."""
        self.ways().check()
        first = self.contexts[0]
        if len(first) != first[-1] - first[0] + 1:
            raise DataError(f"--splice-indexes={self.splice_indexes}: expected a range of frames in layer0")
        if self.shrink_period and averaging_class(self.averaging).has_start:
            raise DataError(
                f"--shrink-interval does not go with --averaging={self.averaging}: the jobs would not see it"
            )
        for name in ("num_epochs", "num_jobs_initial", "num_jobs_final", "add_layers_period", "hidden_layers"):
            _at_least(self, name, 1)
        for name in ("samples_per_iter", "frames_per_eg", "max_models_combine"):
            _at_least(self, name, 1)
        for name in (
            "num_epochs_extra",
            "left_context",
            "right_context",
            "early_stop_epochs",
            "seed",
            "mix_up",
        ):
            _at_least(self, name, 0)
        _at_least(self, "minibatch_size", 2)
        for name in ("pnorm_output_dim", "pnorm_input_dim", "hidden_dim"):
            _at_least(self, name, 1)
        if self.pnorm_input_dim % self.pnorm_output_dim:
            raise DataError(
                f"--pnorm-input-dim={self.pnorm_input_dim}: "
                f"not a multiple of --pnorm-output-dim={self.pnorm_output_dim}"
            )
        for name in ("initial_effective_lrate", "final_effective_lrate"):
            if not 0 < getattr(self, name) < float("inf"):
                raise DataError(f"--{flag_name(name)}: expected a positive number, got {getattr(self, name)}")


def _at_least(options: object, name: str, least: float) -> None:
    value = getattr(options, name)
    if not value >= least:
        raise DataError(f"--{flag_name(name)}: expected {least} or more, got {value}")


@dataclass
class DriverOptions:
    """How it is run: the models do not depend on these."""

    cmd: str = opt("run.py", "launcher of all jobs, with its options")
    train_opts: str = opt("", "further launcher options for training jobs, e.g. '--gpu 1'")
    nj: int = opt(4, "jobs that make the examples")
    egs_dir: str = opt("", "train on the examples of this directory instead of making them")
    device: str = opt("cpu", "where the training jobs compute", choices=("cpu", "gpu"))
    max_tries: int = opt(1, "run a training job that failed again, so often in all")
    cleanup: bool = opt(True, "remove what neither a resume nor the final model needs; every 10th model stays")
    remove_egs: bool = opt(False, "remove the examples that were made here, when all is done")
    dry_run: bool = opt(False, "make the examples, write plan.tsv and stop")
    overwrite: bool = opt(False, "begin anew in a directory where training was begun with other options")

    def check(self) -> None:
        """Raise DataError for values that cannot be."""
        for name in ("nj", "max_tries"):
            _at_least(self, name, 1)
