"""FSTs as arrays, their bytes and archives, and the graph operations on them."""

import io
import math

import numpy as np
import pytest

from ngsgd.decode.fst_ops import push_special, remove_eps_local, remove_symbols
from ngsgd.errors import DataError
from ngsgd.kaldi_io.fst import FstArrays, fst_bytes, fst_from_bytes, read_fst, read_fst_bytes, write_fst
from ngsgd.kaldi_io.stream import TokenReader
from ngsgd.kaldi_io.tables import SequentialReader, Writer


def random_fst(seed: int, states: int = 9, arcs: int = 18, epsilons: float = 0.6) -> FstArrays:
    """An acyclic transducer with many epsilons, all states connected; every state is final with some probability."""
    rng = np.random.default_rng(seed)
    source = np.concatenate([np.arange(states - 1), rng.integers(0, states - 1, arcs - states + 1)])
    target = source + np.concatenate([np.ones(states - 1, int), rng.integers(1, 4, arcs - states + 1)])
    target = np.minimum(target, states - 1)
    labels = [np.where(rng.random(arcs) < epsilons, 0, rng.integers(1, 4, arcs)) for _ in range(2)]
    final = np.where(rng.random(states) < 0.3, rng.random(states), np.inf)
    final[-1] = 0.5
    return FstArrays.from_arcs(0, final, source, *labels, rng.random(arcs), target)


def languages(fst: FstArrays) -> dict:
    """(input, output) -> (cost of the best path, summed probability of all)."""
    best: dict = {}
    total: dict = {}

    def walk(state: int, inputs: tuple, outputs: tuple, cost: float) -> None:
        if fst.final[state] != np.inf:
            key, end = (inputs, outputs), cost + float(fst.final[state])
            best[key] = min(best.get(key, np.inf), end)
            total[key] = total.get(key, 0.0) + math.exp(-end)
        for a in range(fst.offset[state], fst.offset[state + 1]):
            i, o = (() if x == 0 else (int(x),) for x in (fst.ilabel[a], fst.olabel[a]))
            walk(int(fst.nextstate[a]), inputs + i, outputs + o, cost + float(fst.weight[a]))

    walk(fst.start, (), (), 0.0)
    return {key: (best[key], total[key]) for key in best}


def assert_same_language(a: FstArrays, b: FstArrays, sums: bool = True) -> None:
    x, y = languages(a), languages(b)
    assert set(x) == set(y)
    for key, (best, total) in x.items():
        assert y[key][0] == pytest.approx(best, abs=1e-4)
        if sums:
            assert y[key][1] == pytest.approx(total, rel=1e-4)


def test_arrays_and_back():
    fst = random_fst(0)
    again = FstArrays.from_fst(fst.to_vector())
    for name in ("final", "offset", "ilabel", "olabel", "weight", "nextstate"):
        np.testing.assert_array_equal(getattr(again, name), getattr(fst, name))
    assert fst.to_vector().num_states == 9 and again.start == 0
    assert np.array_equal(np.bincount(fst.source, minlength=9), np.diff(fst.offset))


def test_const_files_of_kaldi_are_read_and_written(golden):
    data = (golden / "gmm/tri1/HCLG.fst").read_bytes()
    fst = FstArrays.from_bytes(data)
    written = fst.const_bytes()
    properties = slice(35, 43)
    assert written[43:] == data[43:] and written[:35] == data[:35] and written[properties] != data[properties]
    assert str(fst_from_bytes(written, "const")) == str(fst_from_bytes(data, "const"))


def test_archives_of_graphs(golden, tmp_path):
    graphs = list(SequentialReader(f"ark:gunzip -c {golden}/gmm/ops/tri1.fsts.gz |", "fst"))
    assert len(graphs) == 72 and graphs[0][0] == "s01-000"
    with Writer(f"ark,scp:{tmp_path}/g.ark,{tmp_path}/g.scp", "fst") as out:
        for key, graph in graphs:
            out.write(key, graph)
    for form in ("ark:" + str(tmp_path / "g.ark"), "scp:" + str(tmp_path / "g.scp")):
        assert [(k, str(g)) for k, g in SequentialReader(form, "fst")] == [(k, str(g)) for k, g in graphs]


def test_an_archive_entry_is_read_to_its_end_and_no_further():
    vector, const = fst_bytes(random_fst(1).to_vector()), random_fst(1).const_bytes()
    for data in (vector, const):
        stream = io.BytesIO(data + b"next")
        assert read_fst_bytes(TokenReader(stream, "x")) == data and stream.read() == b"next"
        with pytest.raises(DataError, match=r"x at byte \d+: .* cut off: expected"):
            read_fst_bytes(TokenReader(io.BytesIO(data[:-3]), "x"))


def test_what_is_no_fst_is_named(tmp_path):
    (tmp_path / "a.fst").write_bytes(b"not an fst at all")
    with pytest.raises(DataError, match=r"a\.fst at byte 4: expected a binary OpenFst file"):
        read_fst(str(tmp_path / "a.fst"))
    write_fst(str(tmp_path / "b.fst"), random_fst(2).to_vector())
    assert read_fst(str(tmp_path / "b.fst")).num_states == 9
    (tmp_path / "c.fst").write_bytes(random_fst(2).const_bytes())
    assert str(read_fst(str(tmp_path / "c.fst"))) == str(read_fst(str(tmp_path / "b.fst")))


@pytest.mark.parametrize("seed", range(40))
def test_removing_epsilons_locally_keeps_the_language(seed):
    fst = random_fst(seed)
    removed = remove_eps_local(fst)
    assert_same_language(fst, removed, sums=False)
    assert removed.num_arcs + np.isfinite(removed.final).sum() <= fst.num_arcs + np.isfinite(fst.final).sum()


def test_epsilons_between_two_symbols_go():
    fst = FstArrays.from_arcs(0, [np.inf, np.inf, 0.0], [0, 1], [0, 5], [7, 0], [1.0, 0.5], [1, 2])
    removed = remove_eps_local(fst)
    assert (removed.num_arcs, removed.ilabel[0], removed.olabel[0], removed.weight[0]) == (1, 5, 7, 1.5)


def test_epsilon_removal_keeps_probabilities_summing_to_one():
    """State 1 is entered once; one of its two arcs joins the arc before it, the other cannot."""
    fst = FstArrays.from_arcs(
        0,
        [np.inf, np.inf, 0.0],
        [0, 0, 1, 1],
        [1, 2, 0, 3],
        [0, 0, 4, 0],
        -np.log([0.6, 0.4, 0.25, 0.75]),
        [1, 2, 2, 2],
    )
    removed = remove_eps_local(fst)
    assert_same_language(fst, removed)
    for state in (0, 1):
        arcs = slice(removed.offset[state], removed.offset[state + 1])
        assert np.exp(-removed.weight[arcs]).sum() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_pushing_gives_every_state_the_same_sum_and_paths_their_cost(seed):
    import kaldifst

    fst = random_fst(seed, epsilons=0.2).to_vector()
    kaldifst.connect(fst)
    fst = FstArrays.from_fst(fst)
    pushed = push_special(fst)
    assert_same_language(fst, pushed)
    sums = np.bincount(pushed.source, np.exp(-pushed.weight), minlength=pushed.num_states) + np.exp(-pushed.final)
    assert np.log(sums.max() / sums.min()) < 1.1e-3


def test_removed_symbols_are_epsilon():
    fst = random_fst(3)
    removed = remove_symbols(fst, [2])
    assert not (removed.ilabel == 2).any() and ((fst.ilabel == 2) <= (removed.ilabel == 0)).all()
    assert (fst.ilabel == 2).any()
