"""H, self-loops and training graphs; agreement with Kaldi's compile-train-graphs."""

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.hmm.h_transducer import HTransducer, add_self_loops
from ngsgd.hmm.training_graph import TrainingGraphCompiler
from ngsgd.hmm.transitions import read_transition_model
from ngsgd.hmm.tree import read_tree
from ngsgd.kaldi_io.fst import FstArrays, read_fst
from ngsgd.kaldi_io.tables import RandomReader, SequentialReader
from ngsgd.lang.symbols import SymbolTable


def model(golden, name):
    return read_transition_model(str(golden / f"gmm/{name}/final.mdl")), read_tree(str(golden / f"gmm/{name}/tree"))


def transcripts(golden) -> dict[str, list[int]]:
    words = SymbolTable.read(str(golden / "lang/words.txt"))
    lines = (golden / "corpus/train/text").read_text().splitlines()
    return {line.split()[0]: [words[w] for w in line.split()[1:]] for line in lines}


def test_graphs_equal_kaldis(golden, run, tmp_path):
    text = f"ark:sym2int.py --map-oov=2 --fields=2- {golden}/lang/words.txt {golden}/corpus/train/text |"
    run(
        "compile-train-graphs",
        golden / "gmm/tri1/tree",
        golden / "gmm/tri1/final.mdl",
        golden / "lang/L.fst",
        text,
        f"ark:{tmp_path}/fsts",
    )
    ours = {k: str(g) for k, g in SequentialReader(f"ark:{tmp_path}/fsts", "fst")}
    kaldis = {k: str(g) for k, g in SequentialReader(f"ark:gunzip -c {golden}/gmm/ops/tri1.fsts.gz |", "fst")}
    assert len(ours) == 144 and len(kaldis) == 72
    assert [k for k, g in kaldis.items() if ours[k] != g] == []


def test_kaldis_alignments_are_paths_of_monophone_graphs(golden):
    transitions, tree = model(golden, "mono")
    compiler = TrainingGraphCompiler(transitions, tree, read_fst(str(golden / "lang/L.fst")), [], 1.0, 1.0)
    texts = transcripts(golden)
    alignments = RandomReader(f"ark:gunzip -c {golden}/gmm/mono/ali.1.gz |", "int32_vector")
    checked = 0
    for key in [k for k in texts if k in alignments][:8]:
        graph = FstArrays.from_fst(compiler.compile(texts[key]))
        cost = path_cost(graph, alignments[key])
        silences = np.log(2.0) * (len(texts[key]) + 1)  # taken or not, each optional silence has probability 1/2
        assert cost == pytest.approx(silences - transitions.log_prob[alignments[key]].sum(), abs=0.03)
        other = next(t for t in texts.values() if t != texts[key])
        assert path_cost(FstArrays.from_fst(compiler.compile(other)), alignments[key]) == np.inf
        checked += 1
    assert checked == 8


def path_cost(fst: FstArrays, symbols) -> float:
    """Cost of the best path with exactly these input symbols: Viterbi over states."""
    cost = np.full(fst.num_states, np.inf)
    cost[fst.start] = 0.0

    def epsilons(cost):
        arcs = np.flatnonzero(fst.ilabel == 0)
        for _ in range(fst.num_states):
            new = cost.copy()
            np.minimum.at(new, fst.nextstate[arcs], cost[fst.source[arcs]] + fst.weight[arcs])
            if np.array_equal(new, cost):
                break
            cost = new
        return cost

    for symbol in symbols:
        cost = epsilons(cost)
        arcs = np.flatnonzero(fst.ilabel == symbol)
        new = np.full(fst.num_states, np.inf)
        np.minimum.at(new, fst.nextstate[arcs], cost[fst.source[arcs]] + fst.weight[arcs])
        cost = new
    return float((epsilons(cost) + fst.final).min())


@pytest.mark.parametrize("name", ["mono", "tri1"])
def test_h_leaves_every_hmm_state_with_probability_one(golden, name):
    transitions, tree = model(golden, name)
    phones = transitions.topology.phones
    windows = [[], [0]] + [[p] * tree.context_width for p in phones]
    h, disambig = HTransducer(transitions, tree).build(windows)
    assert disambig == [transitions.num_transition_ids + 1]
    sums = np.bincount(h.source, np.exp(-h.weight.astype(float)), minlength=h.num_states)
    inside = np.bincount(h.source, h.ilabel > 0, minlength=h.num_states) > 0
    inside[0] = False
    np.testing.assert_allclose(sums[inside], 1.0, rtol=2e-4)
    assert set(h.olabel[h.source == 0]) == set(range(1, len(windows)))
    assert not transitions.is_self_loop[h.ilabel[h.ilabel <= transitions.num_transition_ids]].any()


def test_a_window_of_the_wrong_width_is_refused(golden):
    transitions, tree = model(golden, "tri1")
    with pytest.raises(DataError, match="window of 1 phones"):
        HTransducer(transitions, tree).build([[], [6]])


def test_self_loops_go_where_states_are_entered(golden):
    transitions, _ = model(golden, "mono")
    forward = np.flatnonzero(~transitions.is_self_loop & (transitions.tid_to_phone == 7))[:2]
    a, b = (int(t) for t in forward)
    assert transitions.tid_to_state[a] != transitions.tid_to_state[b]
    # state 1 is entered by a and by b, state 2 by b only
    fst = FstArrays.from_arcs(0, [np.inf, np.inf, 0.0], [0, 0, 1], [a, b, b], [0, 0, 0], [0.0, 0.0, 0.0], [1, 1, 2])
    looped = add_self_loops(fst, transitions, 1.0)
    loops = looped.source == looped.nextstate
    expected = transitions.self_loop_of[transitions.tid_to_state[[a, b, b]]]
    assert sorted(looped.ilabel[loops]) == sorted(expected) and looped.num_states == 5
    leave = np.bincount(looped.source, np.exp(-looped.weight.astype(float)), minlength=5) + np.exp(-looped.final)
    np.testing.assert_allclose(leave[[2, 3, 4]], 1.0, rtol=1e-5)
    np.testing.assert_allclose(leave[1], 1.0)  # entered by epsilon now: no loop
    with pytest.raises(DataError, match="self-loops already"):
        add_self_loops(looped, transitions)


def test_unknown_transition_ids_are_refused(golden):
    transitions, _ = model(golden, "mono")
    fst = FstArrays.from_arcs(0, [0.0], [0], [transitions.num_transition_ids + 1], [0], [0.0], [0])
    with pytest.raises(DataError, match="another model"):
        add_self_loops(fst, transitions)


def test_words_without_pronunciation_are_named_and_counted(golden, run, tmp_path):
    (tmp_path / "text").write_text("u1 2 3\nu2 99\nu3 4\n")
    arguments = ["compile-train-graphs", golden / "gmm/mono/tree", golden / "gmm/mono/final.mdl", golden / "lang/L.fst"]
    result = run(*arguments, "ark:text", "ark:fsts")
    assert "u2: no graph: word 99" in result.stderr and "done 2 graphs, failed 1" in result.stderr
    assert [k for k, _ in SequentialReader(f"ark:{tmp_path}/fsts", "fst")] == ["u1", "u3"]


def test_nothing_is_written_when_most_fail(golden, run, tmp_path):
    arguments = ["compile-train-graphs", golden / "gmm/mono/tree", golden / "gmm/mono/final.mdl", golden / "lang/L.fst"]
    for text in ("", "u1 99\nu2 99\nu3 2\n"):
        (tmp_path / "text").write_text(text)
        run(*arguments, "ark:text", "ark:fsts", status=1)
        assert not (tmp_path / "fsts").exists()


def test_an_empty_transcript_is_optional_silence(golden):
    transitions, tree = model(golden, "mono")
    compiler = TrainingGraphCompiler(transitions, tree, read_fst(str(golden / "lang/L.fst")))
    graph = FstArrays.from_fst(compiler.compile([]))
    assert set(transitions.tid_to_phone[graph.ilabel[graph.ilabel > 0]]) == {1}
    assert not graph.olabel.any()


def test_a_lexicon_of_another_lang_directory_is_refused(golden):
    transitions, tree = model(golden, "mono")
    arrays = FstArrays.from_fst(read_fst(str(golden / "lang/L.fst")))
    arrays.ilabel[arrays.ilabel == 26] = 600
    with pytest.raises(DataError, match="phone 600"):
        TrainingGraphCompiler(transitions, tree, arrays.to_vector())
