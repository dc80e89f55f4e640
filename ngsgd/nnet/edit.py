"""Model files in, changed model files out: what the programs around `surgery`, `learning_rates` call."""

from ngsgd.errors import DataError
from ngsgd.nnet import learning_rates, surgery
from ngsgd.nnet.model import read_model, read_nnet, write_model


def normalise_stddev(rxfilename: str, wxfilename: str, options: surgery.NormalizeStddevOptions) -> None:
    """Normalise the parameters of a model's scale-free layers, as Kaldi's nnet-normalize-stddev."""
    model = read_model(rxfilename)
    reference = read_nnet(options.stddev_from) if options.stddev_from else None
    surgery.normalise_stddev(model.nnet, options.stddev, reference)
    write_model(model, wxfilename, options.binary)


def fix(rxfilename: str, wxfilename: str, options: surgery.FixOptions) -> None:
    """Repair a model's neurons, as Kaldi's nnet-am-fix."""
    model = read_model(rxfilename)
    surgery.fix(model.nnet, options)
    write_model(model, wxfilename, options.binary)


def widen(rxfilename: str, wxfilename: str, options: surgery.WidenOptions) -> None:
    """Widen a model's hidden layers, as Kaldi's nnet-am-widen. DataError when there is none to widen."""
    model = read_model(rxfilename)
    if not surgery.widen(model.nnet, options):
        raise DataError(f"{rxfilename}: no hidden layer to widen to {options.hidden_layer_dim}")
    write_model(model, wxfilename, options.binary)


def switch_preconditioning(rxfilename: str, wxfilename: str, options: surgery.SwitchPreconditioningOptions) -> None:
    """Train a model's affine layers with online natural gradient from now on, as nnet-am-switch-preconditioning."""
    model = read_model(rxfilename)
    model.nnet = surgery.switch_to_online(model.nnet, options)
    write_model(model, wxfilename, options.binary)


def modify_learning_rates(
    previous: str, current: str, wxfilename: str, options: learning_rates.ModifyLearningRatesOptions
) -> None:
    """Equalise the relative changes of a model's layers, as Kaldi's nnet-modify-learning-rates."""
    model = read_model(current)
    learning_rates.modify(read_nnet(previous), model.nnet, options)
    write_model(model, wxfilename, options.binary)
