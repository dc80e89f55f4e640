"""Both forms of natural gradient against their obvious float64 versions, and on the input that real data sends."""

import numpy as np
import pytest

from ngsgd.nnet.updates import natural_gradient_online as online
from ngsgd.nnet.updates import natural_gradient_simple as simple
from ngsgd.nnet.updates.direction import Direction, NotFinite, add_product, corrected_norms
from tests.reference import natural_gradient as reference


def data(rng, n, dim, dtype=np.float64):
    """Rows with a decaying spectrum and a mean, as activations have."""
    mixing = np.linalg.qr(rng.standard_normal((dim, dim)))[0] * np.geomspace(3.0, 0.1, dim)
    return (rng.standard_normal((n, dim)) @ mixing.T + 0.3).astype(dtype)


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@pytest.mark.parametrize("n,dim", [(12, 30), (40, 9), (2, 5)])
def test_simple_equals_inverting_the_matrix_of_the_other_rows(n, dim):
    x = data(np.random.default_rng(1), n, dim)
    for dtype, tolerance in ((np.float64, 1e-10), (np.float32, 2e-4)):
        ours = simple.precondition(x.astype(dtype), 4.0)
        assert ours.rows.dtype == dtype
        assert relative(ours.dense(), reference.simple(x, 4.0)) < tolerance


@pytest.mark.parametrize("rank,dim,n", [(5, 30, 16), (20, 21, 64), (80, 12, 8), (1, 2, 30)])
@pytest.mark.parametrize("period", [1, 4])
def test_online_equals_the_dense_version_over_many_minibatches(rank, dim, n, period):
    rng = np.random.default_rng(2)
    expected = reference.Online(rank, history=300.0, alpha=4.0, update_period=period)
    options = online.OnlineOptions(rank, period, 300.0, 4.0)
    state = None
    for step in range(24):
        x = data(rng, n, dim)
        ours, state = online.precondition(x, state, options)
        assert relative(ours.dense(), expected(x)) < 1e-6, step
        assert np.allclose(ours.square_norms * ours.scale**2, (ours.dense() ** 2).sum(axis=1), rtol=1e-6)
    assert np.allclose(state.basis().T @ np.diag(state.d) @ state.basis() + state.rho * np.eye(dim), expected.fisher())


def test_online_in_float32_stays_close_and_orthonormal():
    rng = np.random.default_rng(3)
    expected, options, state = reference.Online(20), online.OnlineOptions(20, 1), None
    for _ in range(30):
        x = data(rng, 128, 60)
        ours, state = online.precondition(x.astype(np.float32), state, options)
        assert ours.h.dtype == state.v.dtype == np.float32
        assert relative(ours.dense(), expected(x)) < 1e-4
    basis = state.basis()
    assert np.abs(basis @ basis.T - np.eye(20)).max() < 1e-3


def test_online_first_ten_minibatches_update_then_every_fourth():
    rng, state, updated = np.random.default_rng(4), None, []
    for step in range(20):
        _, new = online.precondition(data(rng, 10, 8), state, online.OnlineOptions(3, 4))
        if state is None or new.v is not state.v:
            updated.append(step)
        state = new
    assert updated == [*range(10), 13, 17]


def test_a_history_shorter_than_a_minibatch_does_not_forget_everything():
    x = data(np.random.default_rng(5), 500, 6)
    _, state = online.precondition(x, None, online.OnlineOptions(2, 1, num_samples_history=10.0))
    expected = reference.Online(2, history=10.0)  # its weight of new data ends at 0.9
    expected(x)
    assert np.allclose(state.d, expected.d) and state.rho == pytest.approx(expected.rho)


HARD = {
    "zeros": lambda rng: np.zeros((64, 30)),
    "constant": lambda rng: np.ones((64, 30)),
    "one row": lambda rng: rng.standard_normal((1, 30)),
    "rank one": lambda rng: rng.standard_normal((64, 1)) * rng.standard_normal(30),
    "rank two, huge": lambda rng: 1e15 * rng.standard_normal((64, 2)) @ rng.standard_normal((2, 30)),
    "tiny": lambda rng: 1e-15 * rng.standard_normal((64, 30)),
    "dimension two": lambda rng: rng.standard_normal((64, 2)),
    "dimension one": lambda rng: rng.standard_normal((64, 1)),
    "one dead column": lambda rng: rng.standard_normal((64, 30)) * (np.arange(30) != 4),
}


@pytest.mark.parametrize("rank", [1, 20, 29, 300])
@pytest.mark.parametrize("name", HARD)
def test_hard_input_keeps_norm_finiteness_and_orthonormal_basis(name, rank):
    rng, state = np.random.default_rng(6), None
    for step in range(20):
        x = HARD[name](rng).astype(np.float32)
        if step == 7:
            x[:] = 0.0  # a minibatch of zeros among others
        for answer in (simple.precondition(x, 4.0), None):
            if answer is None:
                answer, state = online.precondition(x, state, online.OnlineOptions(rank, 4))
            result = answer.dense().astype(np.float64)
            assert np.isfinite(result).all() and np.isfinite(answer.square_norms).all()
            assert np.linalg.norm(result) == pytest.approx(np.linalg.norm(x.astype(np.float64)), rel=1e-3)
    if state is not None:
        basis = state.basis()
        assert np.abs(basis @ basis.T - np.eye(len(basis))).max() < 2e-3
        assert (state.d >= online.EPSILON).all() and state.rho >= online.EPSILON


@pytest.mark.parametrize("n,dim", [(40, 500), (128, 201), (3, 20)])
def test_norms_of_corrected_rows_fused_and_plain(n, dim):
    rng = np.random.default_rng(9)
    x, h, weights = (rng.standard_normal(s).astype(np.float32) for s in ((n, dim), (n, 7), 7))
    x[1] *= 0.01  # less is there than is taken away
    expected = (x.astype(np.float64) ** 2).sum(axis=1) - (h.astype(np.float64) ** 2) @ (3.0 + weights)
    for dtype in (np.float32, np.float64):  # the fused loop is for float32, and enough of them
        norms, trace, left = corrected_norms(*(a.astype(dtype) for a in (x, h, 3.0 + weights)))
        assert np.allclose(norms, np.maximum(expected, 0.0), rtol=1e-5, atol=1e-4) and norms[1] == 0.0
        assert trace == pytest.approx((x.astype(np.float64) ** 2).sum(), rel=1e-5)
        assert left == pytest.approx(expected.sum(), rel=1e-5)
    for bad in (np.nan, np.inf, 1e30):
        x[2, 3] = bad
        with pytest.raises(NotFinite):
            corrected_norms(x, h, weights)


@pytest.mark.parametrize("n,p,q", [(3, 40, 50), (50, 6, 40), (50, 40, 6), (60, 7, 8)])
def test_the_product_of_corrected_factors_whichever_way_is_cheaper(n, p, q):
    rng = np.random.default_rng(7)

    def factor(dim, low_rank):
        correction = (rng.standard_normal((n, 4)), rng.standard_normal((dim, 4))) if low_rank else (None, None)
        return Direction(rng.standard_normal((n, dim)), None, rng.uniform(0.5, 2.0), *correction)

    for low_rank_y in (True, False):
        for low_rank_x in (True, False):
            y, x, params = factor(p, low_rank_y), factor(q, low_rank_x), rng.standard_normal((p, q))
            before, rows = params.copy(), x.rows.copy()
            expected = params + 0.7 * y.dense().T @ x.dense()
            add_product(params, 0.7, y, x)
            assert np.allclose(params, expected)
            assert not np.allclose(params, before)
            assert np.array_equal(x.rows, rows)
