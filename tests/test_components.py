"""The conformance test that every network component passes (DESIGN, convention 7): it runs over the registry."""

import io

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.kaldi_io.stream import TokenReader, TokenWriter
from ngsgd.nnet.components.base import (
    Chunks,
    StatisticsMixin,
    UpdatableComponent,
    all_components,
    component_class,
    read_component,
)
from ngsgd.nnet.components.noise import RandomComponent

# Every type of Kaldi's nnet2 that its NewComponentOfType knows.
KALDI_TYPES = {
    *("SigmoidComponent", "TanhComponent", "PowerComponent", "SoftmaxComponent", "LogSoftmaxComponent"),
    *("RectifiedLinearComponent", "NormalizeComponent", "SoftHingeComponent", "PnormComponent", "MaxoutComponent"),
    *("ScaleComponent", "AffineComponent", "AffineComponentPreconditioned", "AffineComponentPreconditionedOnline"),
    *("SumGroupComponent", "BlockAffineComponent", "BlockAffineComponentPreconditioned", "PermuteComponent"),
    *("DctComponent", "FixedLinearComponent", "FixedAffineComponent", "FixedScaleComponent", "FixedBiasComponent"),
    *("SpliceComponent", "SpliceMaxComponent", "DropoutComponent", "AdditiveNoiseComponent"),
    *("Convolutional1dComponent", "MaxpoolingComponent"),
}


def instances():
    return [
        pytest.param(component, id=f"{name}-{i}")
        for name in all_components()
        for i, component in enumerate(component_class(name).examples(np.random.default_rng(0)))
    ]


def chunks_of(component, count=2, outputs=(0, 1)):
    outputs = np.asarray(outputs)
    return Chunks(count, np.unique(outputs[:, None] + np.asarray(component.context)), outputs)


class Case:
    """A component with random input, output weights and arrangement of rows, all float64."""

    def __init__(self, component, dtype=np.float64, seed=1, scale=1.0, **chunk_options):
        rng = np.random.default_rng(seed)
        self.component = component.copy().astype(dtype)
        self.chunks = chunks_of(component, **chunk_options)
        rows = self.chunks.count * len(self.chunks.inputs)
        self.x = (scale * rng.standard_normal((rows, component.input_dim))).astype(dtype)
        self.weights = rng.standard_normal((self.chunks.count * len(self.chunks.outputs), component.output_dim)).astype(
            dtype
        )

    def with_ones(self, x):
        return np.hstack((x, np.ones((len(x), 1), x.dtype))) if self.component.takes_ones else x

    def forward(self, x=None, out=None):
        if isinstance(self.component, RandomComponent):
            self.component.rng = np.random.default_rng(7)
        return self.component.forward(self.with_ones(self.x if x is None else x), out, self.chunks)

    def backward(self, out=None):
        c = self.component
        y = self.forward()
        x, y = (self.with_ones(self.x) if c.needs_x else None), (y if c.needs_y else None)
        return c.backward(x, y, self.weights, out, self.chunks)

    def objective(self, x=None):
        return float((self.forward(x) * self.weights).sum())


def difference_quotients(function, values, step=1e-6):
    """d function / d values by central differences; `values` is changed and restored."""
    slopes = np.zeros_like(values)
    for index in np.ndindex(*values.shape):
        kept = values[index]
        values[index] = kept + step
        above = function()
        values[index] = kept - step
        slopes[index] = (above - function()) / (2 * step)
        values[index] = kept
    return slopes


def test_all_of_kaldis_types_are_there():
    assert set(all_components()) >= KALDI_TYPES


@pytest.mark.parametrize("component", instances())
def test_derivative_with_respect_to_the_input(component):
    case = Case(component)
    numeric = difference_quotients(case.objective, case.x)
    np.testing.assert_allclose(case.backward(), numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("component", [i for i in instances() if isinstance(i.values[0], UpdatableComponent)])
def test_derivative_with_respect_to_the_parameters(component):
    case = Case(component)
    numeric = difference_quotients(case.objective, case.component.params)
    factors = case.component.gradient_factors(case.with_ones(case.x), case.weights)
    for factor in factors:
        factor.params[...] = factor.dy.T @ factor.x
    assert sum(f.params.size for f in factors) == numeric.size
    np.testing.assert_allclose(case.component.params, numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("component", instances())
def test_results_go_where_they_are_wanted(component):
    """`out` is a view beside a column of ones, which must survive, and its content the same as without."""
    case = Case(component, np.float32)
    for compute in (case.forward, case.backward):
        plain = compute()
        assert plain.dtype == np.float32
        buffer = np.full((plain.shape[0], plain.shape[1] + 1), 3, np.float32)
        result = compute(out=buffer[:, :-1])
        assert np.shares_memory(result, buffer)
        np.testing.assert_allclose(buffer[:, :-1], plain, rtol=1e-6, atol=1e-6)
        assert (buffer[:, -1] == 3).all()


@pytest.mark.parametrize("component", [i for i in instances() if i.values[0].in_place])
def test_derivatives_in_place(component):
    case = Case(component)
    wanted = case.backward().copy()
    np.testing.assert_array_equal(case.backward(out=case.weights), wanted)


@pytest.mark.parametrize("component", instances())
def test_arguments_are_left_alone(component):
    case = Case(component)
    x, weights = case.x.copy(), case.weights.copy()
    case.backward()
    np.testing.assert_array_equal(case.x, x)
    np.testing.assert_array_equal(case.weights, weights)


@pytest.mark.parametrize("outputs", [(0,), (0, 1)])
@pytest.mark.parametrize("scale", [0.0, 1e-25, 1e4])
@pytest.mark.parametrize("component", instances())
def test_zeros_one_row_and_large_numbers_stay_finite(component, scale, outputs):
    case = Case(component, np.float32, scale=scale, count=1, outputs=outputs)
    with np.errstate(invalid="raise", divide="raise"):
        assert np.isfinite(case.forward()).all()
        assert np.isfinite(case.backward()).all()


def write(component, binary):
    stream = io.BytesIO()
    component.write(TokenWriter(stream, binary))
    return stream.getvalue()


def read(data, binary):
    reader = TokenReader(io.BufferedReader(io.BytesIO(data)), "x.mdl", binary)
    component = read_component(reader)
    assert reader.at_end()
    return component


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("component", instances())
def test_written_and_read_back(component, binary):
    if isinstance(component, StatisticsMixin):
        component.accumulate(*[np.ones((2, component.input_dim), np.float32)] * 2)
    data = write(component, binary)
    again = read(data, binary)
    assert type(again) is type(component)
    assert write(again, binary) == data
    assert again.info().split(",")[:3] == component.info().split(",")[:3]  # type and dimensions
    np.testing.assert_allclose(Case(again).forward(), Case(component).forward(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("component", instances())
def test_a_file_cut_off_anywhere_is_a_data_error(component):
    data = write(component, True)
    for size in {1, len(data) // 3, len(data) // 2, len(data) - 3}:
        with pytest.raises(DataError, match=r"x\.mdl"):
            read(data[:size], True)


@pytest.mark.parametrize("component", instances())
def test_a_copy_shares_nothing(component):
    copy = component.copy()
    before = write(component, True)
    for name in copy.array_names:
        getattr(copy, name)[...] = 0
    if isinstance(copy, StatisticsMixin):
        copy.accumulate(*[np.ones((2, copy.input_dim), np.float32)] * 2)
    assert write(component, True) == before


@pytest.mark.parametrize("name", list(all_components()))
def test_unknown_options_name_the_known_ones(name):
    cls = component_class(name)
    with pytest.raises(DataError, match=rf"{name}: unknown option 'colour'; known: .*\w+"):
        cls.from_config({"colour": "red"}, np.random.default_rng(0))


def test_unknown_types_name_the_known_ones():
    with pytest.raises(DataError, match=r"unknown component 'GeluComponent'; known: .*PnormComponent"):
        component_class("GeluComponent")


# ---- what single components owe their users


def of(name, **options):
    options = {key.replace("_", "-"): str(value) for key, value in options.items()}
    return component_class(name).from_config(options, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("name", "slope"),
    [
        ("SigmoidComponent", lambda y: y * (1 - y)),
        ("TanhComponent", lambda y: 1 - y**2),
        ("RectifiedLinearComponent", lambda y: y > 0),
        ("SoftHingeComponent", lambda y: 1 - np.exp(-y)),
        ("SoftmaxComponent", None),
    ],
)
def test_statistics_are_sums_of_outputs_and_slopes(name, slope):
    component = of(name, dim=5)
    rng = np.random.default_rng(0)
    values, slopes = np.zeros(5), np.zeros(5)
    for rows in (3, 4):
        x = rng.standard_normal((rows, 5)).astype(np.float32)
        y = component.forward(x)
        component.accumulate(x, y)
        values += y.sum(axis=0)
        slopes += slope(y).sum(axis=0) if slope else 0
    assert component.count == 7
    np.testing.assert_allclose(component.value_sum, values, rtol=1e-5)
    np.testing.assert_allclose(component.deriv_sum, slopes if slope else np.zeros(0), rtol=1e-5)
    half = component.copy()
    half.scale_statistics(0.5)
    half.add_statistics(2.0, component)
    np.testing.assert_allclose(half.value_sum, 2.5 * values, rtol=1e-5)
    assert half.count == 17.5


def test_softmax_derivative_of_labels_is_that_of_its_outputs():
    softmax = of("SoftmaxComponent", dim=6)
    rng = np.random.default_rng(0)
    y = softmax.forward(rng.standard_normal((4, 6)))
    row, pdf = np.array([0, 1, 1, 3, 3]), np.array([5, 2, 2, 0, 1])  # a row without labels, a label given twice
    weight = np.array([1.0, 0.5, 0.25, 2.0, 1.0])
    dy = np.zeros_like(y)
    np.add.at(dy, (row, pdf), weight / y[row, pdf])
    np.testing.assert_allclose(
        softmax.backward_labels(y, row, pdf, weight), softmax.backward(None, y, dy), rtol=1e-12, atol=1e-14
    )


def test_softmax_of_hopeless_logits_is_floored():
    y = of("SoftmaxComponent", dim=3).forward(np.array([[0, 1000, -1000]], np.float32))
    np.testing.assert_allclose(y, [[1e-20, 1, 1e-20]])


def exact(component, method, *arrays):
    """A method in float64, which no fused kernel takes."""
    doubles = [None if a is None else a.astype(np.float64) for a in arrays]
    return getattr(component.copy().astype(np.float64), method)(*doubles)


@pytest.mark.parametrize("rows", [1, 37, 150])
@pytest.mark.parametrize("scale", [0.0, 1e-12, 1.0, 1e10])
@pytest.mark.parametrize(
    "component",
    [of("PnormComponent", input_dim=1000, output_dim=200), of("NormalizeComponent", dim=700)],
    ids=["pnorm", "normalize"],
)
def test_fused_kernels_compute_what_the_plain_versions_do(component, scale, rows, monkeypatch):
    """Also beside a column of ones, in place, and with a row of zeros."""
    monkeypatch.setattr("ngsgd.backend.FUSED_SIZE", 0)
    rng = np.random.default_rng(0)
    x = (scale * rng.standard_normal((rows, component.input_dim))).astype(np.float32)
    x[rows // 2] = 0
    dy = rng.standard_normal((rows, component.output_dim)).astype(np.float32)
    beside = np.full((rows, component.output_dim + 1), 3, np.float32)
    y = component.forward(x, beside[:, :-1])
    np.testing.assert_allclose(y, exact(component, "forward", x), rtol=1e-5, atol=1e-30)
    assert (beside[:, -1] == 3).all()
    wanted = exact(component, "backward", x, y, dy)
    np.testing.assert_allclose(component.backward(x, y, dy), wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    if component.in_place:
        component.backward(x, y, dy, dy)
        np.testing.assert_allclose(dy, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_fused_kernels_pass_on_what_is_not_finite(value):
    for name, options in (
        ("PnormComponent", {"input_dim": 1000, "output_dim": 200}),
        ("NormalizeComponent", {"dim": 1000}),
        ("SoftmaxComponent", {"dim": 1000}),
    ):
        x = np.ones((20, 1000), np.float32)
        x[3, 4] = value
        y = of(name, **options).forward(x)
        assert not np.isfinite(y[3]).all() and np.isfinite(np.delete(y, 3, axis=0)).all(), name


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0, 1e5])
def test_fused_softmax_is_the_plain_one(spread):
    softmax = of("SoftmaxComponent", dim=500)
    rng = np.random.default_rng(0)
    x = (spread * rng.standard_normal((50, 500))).astype(np.float32)
    y = softmax.forward(x)
    np.testing.assert_allclose(y, exact(softmax, "forward", x), rtol=3e-6)
    assert y.min() >= np.float32(1e-20)
    row, pdf = np.array([0, 3, 3, 49]), np.array([0, 499, 7, 250])
    weight = np.array([1, 0.5, 0.5, 2], np.float32)
    wanted = softmax.backward_labels(y.astype(np.float64), row, pdf, weight)
    np.testing.assert_allclose(softmax.backward_labels(y, row, pdf, weight, y), wanted, rtol=1e-5, atol=1e-7)


def test_constant_columns_are_spliced_once():
    splice = of("SpliceComponent", input_dim=3, context="-1:0:1", const_component_dim=1)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    y = splice.forward(x, None, Chunks(1, np.arange(4), np.array([1, 2])))
    np.testing.assert_array_equal(y, [[0, 1, 3, 4, 6, 7, 2], [3, 4, 6, 7, 9, 10, 5]])


def test_splicing_whole_chunks_copies_nothing():
    splice = of("SpliceComponent", input_dim=3, left_context=1, right_context=1)
    x = np.arange(18, dtype=np.float32).reshape(6, 3)
    y = splice.forward(x, None, Chunks(2, np.arange(3), np.array([1])))
    assert y.shape == (2, 9) and np.shares_memory(x, y)


def test_dropout_keeps_the_mean_and_the_proportion():
    dropout = of("DropoutComponent", dim=100, dropout_proportion=0.3, dropout_scale=0.1)
    x = np.ones((1000, 100), np.float32)
    np.testing.assert_array_equal(dropout.forward(x), x)  # not in training
    dropout.rng = np.random.default_rng(0)
    y = dropout.forward(x)
    low = np.isclose(y, 0.1)
    assert abs(low.mean() - 0.3) < 0.01
    assert abs(y.mean() - 1) < 0.01


def test_permutation_moves_column_i_to_reorder_i():
    permute = of("PermuteComponent", dim=5)
    x = np.arange(5.0)[None]
    y = permute.forward(x)
    assert all(y[0, permute.reorder[i]] == x[0, i] for i in range(5))


def test_convolution_is_a_sliding_filter():
    conv = of(
        "Convolutional1dComponent", input_dim=12, output_dim=6, patch_dim=2, patch_step=2, patch_stride=6
    )  # 2 spliced frames of 6, 3 patches of 2 columns of each frame, 2 filters
    x = np.random.default_rng(0).standard_normal((1, 12)).astype(np.float32)
    frames = x.reshape(2, 6)
    wanted = [conv.linear @ frames[:, 2 * p : 2 * p + 2].reshape(-1) + conv.bias for p in range(3)]
    np.testing.assert_allclose(conv.forward(x)[0], np.concatenate(wanted), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("PnormComponent", {"input_dim": 10, "output_dim": 3}, "input-dim=10: not a multiple of output-dim=3"),
        ("PnormComponent", {"input_dim": 10}, "needs output-dim="),
        ("PnormComponent", {"input_dim": "ten", "output_dim": 5}, "input-dim: expected int, got 'ten'"),
        ("AffineComponent", {"input_dim": 10}, "needs output-dim="),
        ("AffineComponentPreconditioned", {"input_dim": 2, "output_dim": 2, "alpha": 0}, "alpha must be above 0"),
        ("BlockAffineComponent", {"input_dim": 10, "output_dim": 4, "num_blocks": 4}, "input-dim=10 is not a multiple"),
        ("SpliceComponent", {"input_dim": 10}, "needs context="),
        ("SpliceComponent", {"input_dim": 10, "context": "1:0"}, "must be increasing"),
        ("SpliceComponent", {"input_dim": 10, "context": "1:2"}, "must span 0"),
        ("SpliceComponent", {"input_dim": 10, "context": "0:x"}, "expected integers separated by colons"),
        ("SpliceComponent", {"input_dim": 3, "context": "0", "const_component_dim": 3}, "const-component-dim=3"),
        ("SumGroupComponent", {"sizes": "2:0"}, "every size must be above 0"),
        ("DctComponent", {"dim": 10, "dct_dim": 4, "reorder": "true"}, "not a multiple of dct-dim=4"),
        ("ScaleComponent", {"dim": 3, "scale": 0}, "scale must not be 0"),
        ("TanhComponent", {"dim": 0}, "dim must be above 0"),
        ("DropoutComponent", {"dim": 3, "dropout_proportion": 1}, "must be in"),
        ("MaxpoolingComponent", {"input_dim": 12, "output_dim": 3, "pool_size": 3, "pool_stride": 2}, "expected 4"),
        ("FixedAffineComponent", {"matrix": "no/such/file"}, "cannot open no/such/file"),
    ],
)
def test_configurations_that_make_no_sense_say_why(name, options, message):
    with pytest.raises(DataError, match=message):
        of(name, **options)
