"""What a model consists of, for people and for scripts."""

from dataclasses import dataclass

from ngsgd.kaldi_io.stream import open_reader
from ngsgd.nnet.model import Nnet, read_model
from ngsgd.options import opt


@dataclass
class InfoOptions:
    """What to print."""

    print_learning_rates: bool = opt(False, "print only the learning rates of the updatable layers, with colons")


def describe(rxfilename: str, options: InfoOptions) -> str:
    """Text about a model or a raw network, in the words of Kaldi's nnet-am-info."""
    with open_reader(rxfilename) as reader:
        model = Nnet.read(reader) if reader.peek() == "<Nnet>" else None
    if model is None:
        model = read_model(rxfilename)
    if options.print_learning_rates:
        nnet = model if isinstance(model, Nnet) else model.nnet
        return ":".join(f"{rate:.6g}" for rate in nnet.learning_rates) + "\n"
    return model.info()
