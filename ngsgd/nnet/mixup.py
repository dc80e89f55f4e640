"""Mixing up: several softmax outputs for one pdf, summed, as the Gaussians of a mixture are.

Which pdfs get how many follows from the occupation counts that the softmax kept in training, by the power rule of
Gaussian mixtures. The output with the largest count of a pdf is split into two with half the probability each, moved
apart by a random vector; the network's outputs thus stay nearly the same. A FixedScaleComponent before the softmax (the
scaling by priors; Kaldi's nnet-am-mixup refuses it) gets the scale of the pdf for each of its outputs.
"""

import logging
from dataclasses import dataclass

import numpy as np

from ngsgd.errors import DataError
from ngsgd.gmm.update import split_targets
from ngsgd.nnet.components.affine import AffineComponent
from ngsgd.nnet.components.fixed import FixedScaleComponent
from ngsgd.nnet.components.pooling import SumGroupComponent
from ngsgd.nnet.components.softmax import SoftmaxComponent
from ngsgd.nnet.model import Nnet, read_model, write_model
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclass
class MixupOptions:
    """How many mixture components, and how they are spread."""

    num_mixtures: int = opt(-1, "total number of mixture components wanted, more than there are pdfs", at_least=1)
    power: float = opt(0.25, "a pdf gets mixture components in proportion to its count to this power")
    min_count: float = opt(1000.0, "fewest frames of a mixture component", at_least=0)
    perturb_stddev: float = opt(0.01, "standard deviation of the random vector that moves the halves apart", at_least=0)
    srand: int = opt(0, "seed of that vector", at_least=0)


def mix_up(nnet: Nnet, options: MixupOptions) -> Nnet:
    """A network with more mixture components; the components before the last affine one are shared.

    DataError when the network does not end in an affine component, perhaps fixed scales, a softmax and perhaps a
    SumGroupComponent, when the softmax kept no counts, and when no number was asked for.
    """
    affine, scaling, softmax, groups = _last_components(nnet)
    sizes = groups.sizes
    counts = np.add.reduceat(softmax.value_sum, np.cumsum(sizes) - sizes) if softmax.value_sum.size else np.zeros(0)
    if not counts.sum() > 0:
        raise DataError(f"{nnet.where}: the softmax has no counts, which mixing up needs: train the model first")
    if options.num_mixtures < len(sizes):
        raise DataError(f"--num-mixtures={options.num_mixtures}: expected at least the {len(sizes)} pdfs")
    targets = split_targets(counts, options.num_mixtures, options.power, options.min_count)
    new_sizes = np.maximum(targets, sizes)
    scales = scaling.values if scaling else np.ones(sizes.sum(), np.float32)
    params, value_sum = [], []
    starts = np.cumsum(sizes) - sizes
    for pdf, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist())):
        old = slice(start, start + size)
        rng = np.random.default_rng([options.srand, pdf])
        half = np.float32(np.log(0.5) / scales[start])
        p, v = _split(
            affine.params[old], softmax.value_sum[old], int(new_sizes[pdf]), half, options.perturb_stddev, rng
        )
        params.append(p)
        value_sum.append(v)
    affine, softmax = affine.copy(), softmax.copy()
    affine.params = np.concatenate(params)
    softmax.dim, softmax.value_sum, softmax.deriv_sum = len(affine.params), np.concatenate(value_sum), np.zeros(0)
    softmax.count = float(softmax.value_sum.sum())
    groups = SumGroupComponent.of_sizes(new_sizes)
    log.info("mixed up from %d to %d softmax outputs", sizes.sum(), softmax.dim)
    end = [affine, softmax, groups]
    if scaling:
        end.insert(1, FixedScaleComponent.from_values({"values": np.repeat(scales[starts], new_sizes)}, nnet.where))
    kept = nnet.components[: nnet.components.index(nnet.updatable[-1])]
    return Nnet([*kept, *end], nnet.where)


def _last_components(
    nnet: Nnet,
) -> tuple[AffineComponent, FixedScaleComponent | None, SoftmaxComponent, SumGroupComponent]:
    components = [*nnet.components]
    groups = components.pop() if isinstance(components[-1], SumGroupComponent) else None
    softmax = components.pop()
    scaling = components.pop() if components and isinstance(components[-1], FixedScaleComponent) else None
    if not (isinstance(softmax, SoftmaxComponent) and components and isinstance(components[-1], AffineComponent)):
        found = ", ".join(c.type_name for c in nnet.components[-3:])
        raise DataError(f"{nnet.where}: expected an affine component and a softmax at the end, found {found}")
    return components[-1], scaling, softmax, groups or SumGroupComponent.of_sizes(np.ones(nnet.output_dim))


def _split(
    params: np.ndarray, counts: np.ndarray, size: int, half: float, stddev: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of parameters and counts of one pdf, split until there are `size`. half: log(1/2), scaled."""
    params, counts = params.copy(), list(counts)
    while len(params) < size:
        largest = int(np.argmax(counts))
        counts[largest] *= 0.5
        counts.append(counts[largest])
        away = np.append(rng.standard_normal(params.shape[1] - 1), 0).astype(np.float32) * np.float32(stddev)
        params[largest, -1] += half
        params = np.vstack((params, params[largest] - away))
        params[largest] += away
    return params.astype(np.float32), np.array(counts)


def mix_up_model(model_rxfilename: str, model_wxfilename: str, options: MixupOptions) -> None:
    """Mix up a model, as Kaldi's nnet-am-mixup."""
    model = read_model(model_rxfilename)
    model.nnet = mix_up(model.nnet, options)
    write_model(model, model_wxfilename)
