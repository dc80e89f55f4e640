"""Adding layers to a network: inserting components, replacing the last ones."""

import logging
from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.nnet.components.base import UpdatableComponent
from ngsgd.nnet.components.softmax import SoftmaxComponent
from ngsgd.nnet.model import AmNnet, Nnet, read_model, read_nnet, write_model
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclass
class InsertOptions:
    """Where to insert, and what happens to the component after."""

    insert_at: int = opt(
        -1, "insert before this component, counted from 0; -1: before the one before the softmax", at_least=-1
    )
    randomize_next_component: bool = opt(True, "draw the parameters of the component after the inserted ones anew")
    stddev_factor: float = opt(
        0.1, "their standard deviation times the square root of their number of inputs", at_least=0
    )
    srand: int = opt(0, "seed of those parameters", at_least=0)
    binary: bool = opt(True, "write in binary form")


def softmax_index(nnet: Nnet) -> int:
    """Where the softmax is. DataError unless there is exactly one."""
    found = [i for i, c in enumerate(nnet) if isinstance(c, SoftmaxComponent)]
    if len(found) != 1:
        raise DataError(f"{nnet.where}: expected one SoftmaxComponent, found {len(found)}: say where with --insert-at")
    return found[0]


def randomise(component: UpdatableComponent, stddev: float, rng: np.random.Generator) -> None:
    """Draw all parameters, the bias too, from a Gaussian of this standard deviation."""
    component.params[...] = rng.standard_normal(component.params.shape, np.float32) * np.float32(stddev)


def inserted(nnet: Nnet, new: Nnet, options: InsertOptions) -> Nnet:
    """The network with the components of `new` in it; shares components with both.

    DataError when the place does not exist, the dimensions do not chain, or the next component is not updatable but
    should be randomised.
    """
    at = options.insert_at
    if at < 0:
        at = softmax_index(nnet) - 1
    if not 0 <= at <= len(nnet):
        raise DataError(f"{nnet.where}: cannot insert before component {at}: it has {len(nnet)}")
    result = Nnet([*nnet.components[:at], *new.components, *nnet.components[at:]], f"{nnet.where} with {new.where}")
    if options.randomize_next_component:
        index = at + len(new)
        following = result[index] if index < len(result) else None
        if not isinstance(following, UpdatableComponent):
            what = following.type_name if following else "none"
            raise DataError(
                f"{nnet.where}: the component after the inserted ones ({what}) has no parameters to randomise: "
                f"use --randomize-next-component=false"
            )
        following = following.copy()
        stddev = options.stddev_factor * following.input_dim**-0.5
        randomise(following, stddev, np.random.default_rng([options.srand, index]))
        result.components[index] = following
    return result


def with_last_replaced(nnet: Nnet, remove: int, new: Nnet) -> Nnet:
    """The network without its last `remove` components, and those of `new` after it; shares components with both."""
    if not 0 <= remove <= len(nnet):
        raise DataError(f"{nnet.where}: cannot remove {remove} of {len(nnet)} components")
    return Nnet([*nnet.components[: len(nnet) - remove], *new.components], f"{nnet.where} with {new.where}")


def insert(model_rxfilename: str, nnet_rxfilename: str, model_wxfilename: str, options: InsertOptions) -> None:
    """Insert the components of a raw network into a model, as Kaldi's nnet-insert."""
    model = read_model(model_rxfilename)
    new = read_nnet(nnet_rxfilename)
    model = AmNnet(model.transitions, inserted(model.nnet, new, options), model.priors)
    model.check_outputs()
    write_model(model, model_wxfilename, options.binary)
    log.info("inserted %d components", len(new))


@dataclass
class ReplaceLastLayersOptions:
    """How much to remove."""

    remove_layers: int = opt(2, "number of last components to remove, those without parameters counted", at_least=0)
    binary: bool = opt(True, "write in binary form")


def replace_last_layers(
    model_rxfilename: str, nnet_rxfilename: str, model_wxfilename: str, options: ReplaceLastLayersOptions
) -> None:
    """Replace the last components of a model by those of a raw network, as Kaldi's nnet-replace-last-layers.

    The outputs must stay as many as the pdfs of the transition model.
    """
    model = read_model(model_rxfilename)
    nnet = with_last_replaced(model.nnet, options.remove_layers, read_nnet(nnet_rxfilename))
    result = AmNnet(model.transitions, nnet, model.priors if nnet.output_dim == model.nnet.output_dim else None)
    result.check_outputs()
    write_model(result, model_wxfilename, options.binary)
    log.info("removed %d components, the network has %d now", options.remove_layers, len(nnet))
