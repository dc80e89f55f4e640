"""numpy = cupy: every component, and whole networks, on a GPU against the CPU. Without one: skipped, saying why."""

import numpy as np
import pytest

from ngsgd.backend import array_module, gpu_missing, module_of, to_cpu, to_module
from ngsgd.errors import DataError
from ngsgd.nnet.backprop import Workspace
from ngsgd.nnet.components.base import Chunks, StatisticsMixin, UpdatableComponent, all_components, component_class
from ngsgd.nnet.components.noise import RandomComponent
from ngsgd.nnet.compute import Computer
from ngsgd.nnet.config import nnet_from_config

needs_gpu = pytest.mark.skipif(bool(gpu_missing()), reason=gpu_missing() or "there is a GPU")


def test_a_machine_without_a_gpu_says_so():
    """Never a silent CPU run: asking for a GPU where there is none is an error that says what is missing."""
    assert array_module("cpu") is np
    with pytest.raises(DataError, match="expected cpu or gpu, got 'tpu'"):
        array_module("tpu")
    if gpu_missing():
        with pytest.raises(DataError, match=r"a GPU was asked for, but .*; use --device=cpu"):
            array_module("gpu")


def instances():
    return [
        pytest.param(component, id=f"{name}-{i}")
        for name in all_components()
        for i, component in enumerate(component_class(name).examples(np.random.default_rng(0)))
    ]


def compute(component, xp, dtype):
    """Output, input derivative, gradient factors and statistics of a component on random data, as CPU arrays."""
    component = component.copy().astype(dtype).to(xp)
    rng = np.random.default_rng(1)
    outputs = np.array([0, 1])
    chunks = Chunks(2, np.unique(outputs[:, None] + np.asarray(component.context)), outputs)
    x = rng.standard_normal((2 * len(chunks.inputs), component.input_dim)).astype(dtype)
    dy = to_module(rng.standard_normal((4, component.output_dim)).astype(dtype), xp)
    x = to_module(np.hstack((x, np.ones((len(x), 1), dtype))) if component.takes_ones else x, xp)
    if isinstance(component, RandomComponent):
        component.rng = np.random.default_rng(7)
    buffer = xp.zeros((4, component.output_dim + 1), dtype)
    y = component.forward(x, buffer[:, :-1], chunks)
    results = [y, component.backward(x, y, dy, None, chunks)]
    if isinstance(component, UpdatableComponent):
        results += [f.dy.T @ f.x for f in component.gradient_factors(x, dy)]
    if isinstance(component, StatisticsMixin):
        component.accumulate(x, y)
        results += [component.value_sum, component.deriv_sum]
    assert all(module_of(r) is xp for r in results if r.size)
    return [to_cpu(r) for r in results]


@needs_gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("component", instances())
def test_components_agree(component, dtype):
    tolerance = 1e-4 if dtype == np.float32 else 1e-10
    for cpu, gpu in zip(compute(component, np, dtype), compute(component, array_module("gpu"), dtype)):
        np.testing.assert_allclose(gpu, cpu, rtol=tolerance, atol=tolerance)


NETWORK = """
SpliceComponent input-dim=5 left-context=2 right-context=2 const-component-dim=2
AffineComponent input-dim=17 output-dim=40
PnormComponent input-dim=40 output-dim=8
NormalizeComponent dim=8
SpliceComponent input-dim=8 context=-1:2
AffineComponent input-dim=16 output-dim=30
SoftmaxComponent dim=30
"""


@needs_gpu
def test_whole_networks_agree():
    """Forward, the gradients of labels, and the output of an utterance in blocks."""
    results = []
    for xp in (np, array_module("gpu")):
        rng = np.random.default_rng(0)
        nnet = nnet_from_config(NETWORK, 0).to(xp)
        frames = nnet.left_context + 1 + nnet.right_context
        workspace = Workspace(nnet, 16, frames, xp)
        y = workspace.forward(to_module(rng.standard_normal((16, frames, 5)).astype(np.float32), xp)).copy()
        labels = np.arange(16, dtype=np.int32), rng.integers(0, 30, 16).astype(np.int32), np.ones(16, np.float32)
        steps = list(workspace.backward_labels(*(to_module(a, xp) for a in labels)))
        gradients = [f.dy.T @ f.x for step in steps for f in step.factors]
        features = rng.standard_normal((50, 5)).astype(np.float32)
        results.append([to_cpu(a) for a in (y, *gradients)] + [Computer(nnet, True, 20, xp).output(features)])
    for cpu, gpu in zip(*results):
        np.testing.assert_allclose(gpu, cpu, rtol=1e-3, atol=1e-5)
