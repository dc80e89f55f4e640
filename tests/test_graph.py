"""Decoding graphs: equal to Kaldi's on the golden models; the right costs with a back-off language model."""

import numpy as np
import pytest
from test_training_graph import model, path_cost

from ngsgd.decode.graph import GraphOptions, make_hclg, make_lg
from ngsgd.errors import DataError
from ngsgd.hmm.training_graph import TrainingGraphCompiler
from ngsgd.hmm.transitions import read_transition_model
from ngsgd.kaldi_io.fst import FstArrays, read_fst
from ngsgd.lang.arpa import ArpaToFstOptions, arpa_to_fst, read_arpa
from ngsgd.lang.ngram import NgramOptions, train_ngram
from ngsgd.lang.symbols import SymbolTable, read_integers


def lg_of(golden, grammar):
    return make_lg(read_fst(str(golden / "lang/L_disambig.fst")), read_fst(str(grammar)))


@pytest.mark.parametrize("name", ["mono", "tri1", "tri2b", "tri3b"])
def test_graph_is_kaldis_state_for_state(golden, name):
    transitions, tree = model(golden, name)
    disambig = read_integers(str(golden / "lang/phones/disambig.int"))
    graph = make_hclg(lg_of(golden, golden / "lang_test/G.fst"), disambig, transitions, tree, GraphOptions())
    kaldis = FstArrays.from_bytes((golden / f"gmm/{name}/HCLG.fst").read_bytes())
    assert graph.start == kaldis.start
    for field in ("offset", "ilabel", "olabel", "nextstate"):
        np.testing.assert_array_equal(getattr(graph, field), getattr(kaldis, field))
    np.testing.assert_allclose(graph.weight, kaldis.weight, atol=1e-5)
    np.testing.assert_allclose(graph.final, kaldis.final, atol=1e-5)


@pytest.mark.parametrize("name", ["mono", "tri1"])
def test_costs_with_a_back_off_model_add_up(golden, name, tmp_path):
    """A path costs its pronunciation and transitions (the training graph's) plus its sentence (the ARPA file's)."""
    import kaldifst

    words = SymbolTable.read(str(golden / "lang/words.txt"))
    text = [line.split()[1:] for line in (golden / "corpus/train/text").read_text().splitlines()]
    (tmp_path / "text").write_text("".join(" ".join(s) + "\n" for s in text))
    arpa = str(tmp_path / "lm.arpa")
    train_ngram(str(golden / "lang/words.txt"), str(tmp_path / "text"), arpa, NgramOptions(order=2))
    arpa_to_fst(arpa, str(golden / "lang/words.txt"), str(tmp_path / "G.fst"), ArpaToFstOptions())
    transitions, tree = model(golden, name)
    disambig = read_integers(str(golden / "lang/phones/disambig.int"))
    graph = make_hclg(lg_of(golden, tmp_path / "G.fst"), disambig, transitions, tree, GraphOptions())
    compiler = TrainingGraphCompiler(transitions, tree, read_fst(str(golden / "lang/L.fst")), [], 1.0, 0.1)
    language_model = read_arpa(arpa)
    for sentence in [*text[:4], ["ZERO"], ["NINE", "NINE", "FOUR", "ONE"]]:
        training = compiler.compile([words[w] for w in sentence])
        _, tids, _, cost = kaldifst.get_linear_symbol_sequence(kaldifst.shortest_path(training))
        cost = cost if isinstance(cost, float) else cost.value
        expected = cost - np.log(10) * language_model.sentence_log10(sentence)
        found = path_cost(graph, tids)
        assert found == pytest.approx(expected, abs=0.1)


def test_mkgraph(golden, run, tmp_path):
    import shutil

    shutil.copytree(golden / "lang", tmp_path / "lang")
    shutil.copy(golden / "lang_test/G.fst", tmp_path / "lang")
    run("mkgraph.sh", "lang", golden / "gmm/tri1", "graph")
    ours = FstArrays.from_bytes((tmp_path / "graph/HCLG.fst").read_bytes())
    kaldis = FstArrays.from_bytes((golden / "gmm/tri1/HCLG.fst").read_bytes())
    np.testing.assert_array_equal(ours.ilabel, kaldis.ilabel)
    transitions = read_transition_model(str(golden / "gmm/tri1/final.mdl"))
    assert int((tmp_path / "graph/num_pdfs").read_text()) == transitions.num_pdfs
    for name in ("words.txt", "phones.txt", "phones/silence.csl", "phones/word_boundary.int", "phones/disambig.int"):
        assert (tmp_path / "graph" / name).read_bytes() == (golden / "lang" / name).read_bytes()
    assert "up to date" in run("mkgraph.sh", "lang", golden / "gmm/tri1", "graph").stderr
    (tmp_path / "lang/G.fst").unlink()
    assert "no such file: lang/G.fst" in run("mkgraph.sh", "lang", golden / "gmm/tri1", "graph", status=1).stderr


def test_words_can_be_removed_from_the_graph(golden):
    transitions, tree = model(golden, "mono")
    disambig = read_integers(str(golden / "lang/phones/disambig.int"))
    graph = make_hclg(lg_of(golden, golden / "lang_test/G.fst"), disambig, transitions, tree, GraphOptions(), [11])
    assert set(graph.olabel.tolist()) == set(range(2, 11)) | {0}
    with_all = make_hclg(lg_of(golden, golden / "lang_test/G.fst"), disambig, transitions, tree, GraphOptions())
    assert set(with_all.olabel.tolist()) == set(range(2, 12)) | {0}


def test_a_grammar_of_other_words_is_refused(golden, tmp_path):
    lexicon = read_fst(str(golden / "lang/L_disambig.fst"))
    grammar = FstArrays.from_arcs(0, [0.0, 0.0], [0], [77], [77], [0.0], [1])
    grammar.final[0] = np.inf
    with pytest.raises(DataError, match=r"one words\.txt"):
        make_lg(lexicon, grammar.to_vector())


def test_a_model_of_other_phones_is_refused(golden, run, tmp_path):
    arrays = FstArrays.from_fst(read_fst(str(golden / "lang/L_disambig.fst")))
    arrays.ilabel[arrays.ilabel == 26] = 600
    (tmp_path / "L.fst").write_bytes(arrays.const_bytes())
    result = run(
        "make-graph",
        "L.fst",
        golden / "lang_test/G.fst",
        golden / "lang/phones/disambig.int",
        golden / "gmm/mono/tree",
        golden / "gmm/mono/final.mdl",
        "HCLG.fst",
        status=1,
    )
    assert "phone 600" in result.stderr and not (tmp_path / "HCLG.fst").exists()
