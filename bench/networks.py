"""The networks of the benchmarks, and random minibatches for them.

A = 360→1000/200→1000/200→136 and B = 360→1000/200→1000/200→1000/200→3000 (affine / p-norm sizes), a splice of nine
40-dimensional frames and a fixed 360×360 transform in front, online natural gradient with ranks 20 and 80, period 4.
"""

import numpy as np

from ngsgd.egs.minibatch import Minibatch
from ngsgd.kaldi_io.stream import open_writer
from ngsgd.nnet.components.affine import AffineComponent
from ngsgd.nnet.config import nnet_from_config
from ngsgd.nnet.model import Nnet
from ngsgd.nnet.surgery import without_preconditioning

FRAME_DIM, CONTEXT = 40, 4
# Hidden layers, outputs, dimension of a hidden layer before its p-norm (after it a fifth).
LAYERS = {"A": (2, 136, 1000), "B": (3, 3000, 1000)}
LAYERS |= {"1M": (3, 2000, 900), "10M": (5, 5000, 2750), "50M": (5, 8000, 6600)}  # by millions of parameters
UPDATE = "learning-rate=1e-5 rank-in=20 rank-out=80 update-period=4 alpha=4.0 num-samples-history=2000"


def config(name: str, matrix: str) -> str:
    """The nnet.config of a network."""
    hidden, outputs, width = LAYERS[name]
    groups = width // 5
    lines = [
        f"SpliceComponent input-dim={FRAME_DIM} left-context={CONTEXT} right-context={CONTEXT}",
        f"FixedAffineComponent matrix={matrix}",
    ]
    dim = FRAME_DIM * (2 * CONTEXT + 1)
    affine = "AffineComponentPreconditionedOnline input-dim={} output-dim={} " + UPDATE + " max-change-per-sample=0.075"
    for _ in range(hidden):
        lines += [affine.format(dim, width), f"PnormComponent input-dim={width} output-dim={groups} p=2"]
        lines += [f"NormalizeComponent dim={groups}"]
        dim = groups
    lines += [f"{affine.format(dim, outputs)} param-stddev=0 bias-stddev=0", f"SoftmaxComponent dim={outputs}"]
    return "\n".join(lines)


def network(name: str, folder: str, natural_gradient: bool = True) -> Nnet:
    """A network, initialised; `folder` for the file of its fixed transform."""
    rng = np.random.default_rng(1)
    dim = FRAME_DIM * (2 * CONTEXT + 1)
    matrix = f"{folder}/transform.mat"
    with open_writer(matrix) as w:
        w.matrix(np.hstack([np.linalg.qr(rng.standard_normal((dim, dim)))[0], np.zeros((dim, 1))]).astype(np.float32))
    nnet = nnet_from_config(config(name, matrix), 1)
    return nnet if natural_gradient else without_preconditioning(nnet)


def minibatches(name: str, size: int, count: int) -> list[Minibatch]:
    """Random features with a little structure, and labels that depend on them."""
    rng, outputs = np.random.default_rng(2), LAYERS[name][1]
    mixing = rng.standard_normal((FRAME_DIM, outputs)).astype(np.float32)
    made = []
    for _ in range(count):
        data = rng.standard_normal((size, 2 * CONTEXT + 1, FRAME_DIM), np.float32)
        pdf = (data[:, CONTEXT] @ mixing).argmax(axis=1).astype(np.int32)
        made.append(Minibatch(data, np.arange(size, dtype=np.int32), pdf, np.ones(size, np.float32)))
    return made


def num_parameters(nnet: Nnet) -> int:
    """Trained parameters: 6 times this is the useful arithmetic of a frame."""
    return sum(c.params.size for c in nnet.updatable if isinstance(c, AffineComponent))
