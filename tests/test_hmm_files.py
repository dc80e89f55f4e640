"""Topology, tree and transition model: Kaldi's files come back byte for byte, and are rebuilt from their parts."""

import io
from pathlib import Path

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.gmm.flat_start import read_phone_sets
from ngsgd.hmm.topology import Topology, read_topology
from ngsgd.hmm.transitions import TransitionModel, read_transition_model
from ngsgd.hmm.tree import ContextDependency, monophone_tree, read_tree
from ngsgd.kaldi_io.stream import TokenReader, TokenWriter, open_reader

HERE = Path(__file__).parent / "golden" / "hmm"


def as_bytes(thing, binary=True):
    out = io.BytesIO()
    writer = TokenWriter(out, binary)
    if binary:
        writer.raw(b"\0B")
    thing.write(writer)
    return out.getvalue()


def from_bytes(cls, data):
    reader = TokenReader(io.BufferedReader(io.BytesIO(data)), "test")
    reader.detect_mode()
    return cls.read(reader)


def round_trip(cls, path):
    """Read, write in the form of the file; the bytes written must be those at the beginning of the file."""
    with open_reader(str(path)) as r:
        thing = cls.read(r)
        written = as_bytes(thing, r.binary)
    return thing, written, Path(path).read_bytes()[: len(written)]


@pytest.mark.parametrize("name", ["mono.tree", "tri1.tree"])
def test_trees_come_back_byte_for_byte(name):
    tree, written, original = round_trip(ContextDependency, HERE / name)
    assert written == original and len(written) == (HERE / name).stat().st_size
    text = as_bytes(tree, binary=False)
    assert as_bytes(from_bytes(ContextDependency, text)) == written
    assert b"SE 0 [ " in text or b"SE 1 [ " in text


def test_all_golden_trees_and_models_come_back(golden):
    for path in sorted(golden.glob("gmm/*/tree")):
        _, written, original = round_trip(ContextDependency, path)
        assert written == original, path
    models = [*golden.glob("gmm/*/*.mdl"), *golden.glob("gmm/*/final.alimdl"), golden / "ops/10.txt.mdl"]
    assert len(models) > 8
    for path in models:
        model, written, original = round_trip(TransitionModel, path)
        assert written == original, path
        again = from_bytes(TransitionModel, as_bytes(model, binary=False))
        np.testing.assert_allclose(again.log_prob, model.log_prob, rtol=1e-6)


def test_monophone_tree_is_kaldis():
    tree = monophone_tree(read_topology(str(HERE / "topo")), read_phone_sets(str(HERE / "sets.int")))
    assert as_bytes(tree) == (HERE / "mono.tree").read_bytes()


@pytest.mark.parametrize("name", ["mono", "tri1", "tri2b", "tri3b"])
def test_transition_states_follow_from_tree_and_topology(name, golden):
    model = read_transition_model(str(golden / f"gmm/{name}/final.mdl"))
    rebuilt = TransitionModel.from_tree(read_tree(str(golden / f"gmm/{name}/tree")), model.topology)
    assert np.array_equal(rebuilt.tuples, model.tuples)
    assert rebuilt.num_transition_ids == model.num_transition_ids


def test_the_first_probabilities_are_the_topologys():
    topology = read_topology(str(HERE / "topo"))
    model = TransitionModel.from_tree(monophone_tree(topology, read_phone_sets(str(HERE / "sets.int"))), topology)
    with open_reader(str(HERE / "init.mdl")) as r:
        triphones = TransitionModel.read(r)
    for m in (model, triphones):
        total = np.bincount(m.tid_to_state[1:], np.exp(m.log_prob[1:]))[1:]
        np.testing.assert_allclose(total, 1.0, rtol=1e-6)
        np.testing.assert_allclose(np.exp(m.log_prob[m.self_loop_of[m.self_loop_of > 0]]).max(), 0.75, rtol=1e-6)


def test_arrays_mean_what_they_say():
    topology = read_topology(str(HERE / "topo"))
    model = TransitionModel.from_tree(monophone_tree(topology, read_phone_sets(str(HERE / "sets.int"))), topology)
    for tid in range(1, model.num_transition_ids + 1):
        phone, state, forward, loop = model.tuples[model.tid_to_state[tid] - 1]
        dest, prob = topology.entry(int(phone))[state].transitions[model.tid_to_index[tid]]
        assert model.is_self_loop[tid] == (dest == state)
        assert model.is_final[tid] == (dest == len(topology.entry(int(phone))) - 1)
        assert model.tid_to_pdf[tid] == (loop if dest == state else forward)
        assert (model.tid_to_phone[tid], model.tid_to_hmm_state[tid]) == (phone, state)
        assert model.log_prob[tid] == pytest.approx(np.log(prob), rel=1e-6)
        assert model.transition_state(int(phone), int(state), int(forward), int(loop)) == model.tid_to_state[tid]
    with pytest.raises(DataError, match="do not belong together"):
        model.transition_state(1, 0, 61, 61)


def test_scaled_probabilities():
    """Self-loop, leaving the state and where to are scaled apart; equal scales are one scale."""
    with open_reader(str(HERE / "init.mdl")) as r:
        model = TransitionModel.read(r)
    np.testing.assert_allclose(model.scaled_log_prob(0.5, 0.5), 0.5 * model.log_prob, rtol=1e-6)
    scaled = model.scaled_log_prob(1.0, 0.1)
    tid = int(model.state_to_tid[model.transition_state(*model.tuples[-1].tolist())])  # self-loop .75, on .25
    assert scaled[tid] == pytest.approx(0.1 * np.log(0.75), rel=1e-5)
    assert scaled[tid + 1] == pytest.approx(0.1 * np.log(0.25) + 1.0 * np.log(0.25 / 0.25), rel=1e-5)


CHAIN = b"""<Topology>
<TopologyEntry>
<ForPhones>
1 2
</ForPhones>
<State> 0 <ForwardPdfClass> 0 <SelfLoopPdfClass> 1 <Transition> 0 0.5 <Transition> 1 0.5 </State>
<State> 1 </State>
</TopologyEntry>
</Topology>
"""


def test_chain_topology_with_tuples():
    """Forward and self-loop pdf differ: another topology form, four numbers a state, in text and binary."""
    topology = from_bytes(Topology, CHAIN)
    assert not topology.is_hmm
    model = TransitionModel.from_tree(monophone_tree(topology), topology)
    assert model.tuples.tolist() == [[1, 0, 0, 1], [2, 0, 2, 3]]
    assert model.tid_to_pdf[1:].tolist() == [1, 0, 3, 2]
    binary = as_bytes(model)
    assert b"<Tuples> " in binary
    for data in (binary, as_bytes(model, binary=False)):
        again = from_bytes(TransitionModel, data)
        assert as_bytes(again) == binary


@pytest.mark.parametrize(
    "before,after,message",
    [
        (b"0.5 <Transition> 1 0.5", b"0.5 <Transition> 1 0.1", "sum to 0.6"),
        (b"<Transition> 1 0.5 </State>", b"<Transition> 7 0.5 </State>", "leads to state 7"),
        (b"1 2\n", b"1 1\n", "phone 1 is in two"),
        (b"1 2\n", b"one\n", "expected a phone number"),
        (b"<State> 1 </State>", b"<State> 2 </State>", "numbered from 0"),
        (b"</TopologyEntry>\n</Topology>", b"", "expected"),
    ],
)
def test_bad_topologies_are_named(before, after, message):
    assert before in CHAIN
    with pytest.raises(DataError, match=message):
        from_bytes(Topology, CHAIN.replace(before, after))


def test_phone_sets_must_fit():
    topology = from_bytes(Topology, CHAIN)
    with pytest.raises(DataError, match="two sets"):
        monophone_tree(topology, [[1, 2], [2]])
    with pytest.raises(DataError, match="differ in phone 2"):
        monophone_tree(topology, [[1]])


def test_pdfs_of_a_phone_are_those_that_its_windows_get():
    tree = read_tree(str(HERE / "tri1.tree"))
    rng = np.random.default_rng(0)
    windows = rng.integers(6, 82, size=(200, 3))
    windows[:20, 0] = windows[20:40, 2] = 0
    classes = rng.integers(0, 3, size=200)
    found = [tree.compute(w, c) for w, c in zip(windows, classes, strict=True)]
    assert len(set(found)) > 20
    for window, pdf_class, pdf in zip(windows, classes, found, strict=True):
        assert pdf in tree.pdfs_of(int(window[1]), int(pdf_class))
    with pytest.raises(DataError, match="no pdf for phones"):
        read_tree(str(HERE / "mono.tree")).compute([6], 4)


@pytest.mark.parametrize("cut", [20, 200, 1500])
def test_damaged_tree_is_an_error(cut, tmp_path):
    path = tmp_path / "tree"
    path.write_bytes((HERE / "mono.tree").read_bytes()[:cut])
    with pytest.raises(DataError, match="tree"):
        read_tree(str(path))


def test_numbers_outside_the_model_are_errors():
    with open_reader(str(HERE / "init.mdl")) as r:
        model = TransitionModel.read(r)
    for column, value, message in ((0, 99, "phone that the topology"), (1, 5, "HMM state")):
        tuples = model.tuples.copy()
        tuples[3, column] = value
        with pytest.raises(DataError, match=message):
            TransitionModel(model.topology, tuples)
    with pytest.raises(DataError, match="log-probabilities, found 3"):
        TransitionModel(model.topology, model.tuples, np.zeros(3, np.float32))
