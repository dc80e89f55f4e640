"""What a model consists of, for people and for scripts."""

from dataclasses import dataclass

from ngsgd.kaldi_io.files import open_text_writer
from ngsgd.nnet.model import read_any
from ngsgd.options import opt


@dataclass
class InfoOptions:
    """What to print."""

    print_learning_rates: bool = opt(False, "print only the learning rates of the updatable layers, with colons")
    text_out: str = opt("", "write to this file instead of standard output")


def describe(rxfilename: str, options: InfoOptions) -> str:
    """Text about a model or a raw network, in the words of Kaldi's nnet-am-info."""
    model = read_any(rxfilename, finite=False)
    if options.print_learning_rates:
        return ":".join(f"{rate:.6g}" for rate in model.nnet.learning_rates) + "\n"
    return model.nnet.info() if model.transitions is None else model.info()


def write_description(rxfilename: str, options: InfoOptions) -> None:
    """`describe`, to standard output or the file that is asked for."""
    text = describe(rxfilename, options)
    if not options.text_out:
        print(text, end="")
        return
    with open_text_writer(options.text_out) as out:
        out.write(text)
