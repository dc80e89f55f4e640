"""Forced and equal alignment: Kaldi's alignments, an exhaustive search, and what goes wrong."""

import io

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.gmm.model import read_model
from ngsgd.hmm.align import Aligner, AlignOptions, equal_align, min_frames
from ngsgd.hmm.graphs import read_fst_arrays
from ngsgd.hmm.viterbi import Searcher, search_plain
from ngsgd.hmm.viterbi_kernel import search_fast
from ngsgd.kaldi_io.fst import FstArrays, fst_bytes
from ngsgd.kaldi_io.stream import TokenReader
from ngsgd.kaldi_io.tables import SequentialReader
from tests.reference import gmm as reference


@pytest.fixture(scope="module")
def tri1(golden):
    """(transitions, gmm, features, graphs, Kaldi's alignments) of half of the training set."""
    ops = golden / "gmm/ops"
    graphs = dict(SequentialReader(f"ark:gunzip -c {ops}/tri1.fsts.gz |", "fst_arrays"))
    feats = dict(SequentialReader(f"ark:gunzip -c {ops}/delta.ark.gz |", "matrix"))
    alignments = dict(SequentialReader(f"ark:{ops}/tri1.realigned.ark", "int32_vector"))
    return *read_model(str(golden / "gmm/tri1/final.mdl")), feats, graphs, alignments


@pytest.fixture(scope="session")
def golden(shared):
    return shared / "golden"


@pytest.mark.parametrize("search", [search_plain, search_fast])
def test_alignments_are_kaldis(search, tri1):
    transitions, gmm, feats, graphs, kaldis = tri1
    aligner = Aligner(transitions, AlignOptions())
    aligner._search = search
    same = total = 0
    for key, graph in graphs.items():
        found = aligner.align(graph, lambda pdfs, key=key: gmm.log_likelihoods(feats[key], pdfs))
        same += int((found.tids == kaldis[key]).sum())
        total += len(kaldis[key])
    assert total > 10000 and same / total > 0.999


def random_graph(rng, states=12, labels=5):
    """A graph of forward arcs, some free, self-loops and a final state; column per arc."""
    source, target, column = [], [], []
    for s in range(states):
        for n in {min(s + int(step), states - 1) for step in rng.integers(1, 4, size=2)} - {s}:
            source.append(s), target.append(n), column.append(int(rng.integers(labels)) if rng.random() < 0.8 else -1)
        source.append(s), target.append(s), column.append(int(rng.integers(labels)))
    final = np.full(states, np.inf, np.float32)
    final[[-1, -2]] = rng.random(2)
    column = np.array(column, np.int32)
    weight = rng.random(len(source)).astype(np.float32)
    order = np.argsort(source, kind="stable")
    graph = FstArrays.from_arcs(0, final, np.array(source), column + 1, column + 1, weight, np.array(target))
    return graph, column[order]


def cost_of(graph, column, scores, path):
    """The cost of a path given by its consuming arcs; free arcs between them as cheap as they can be."""
    allowed = np.full((len(scores), scores.shape[1] + graph.num_arcs), -1e9, np.float32)
    allowed[np.arange(len(path)), scores.shape[1] + path] = scores[np.arange(len(path)), column[path]]
    own = np.where(column >= 0, scores.shape[1] + np.arange(graph.num_arcs), -1)
    return reference.best_path_cost(graph, own, allowed)


@pytest.mark.parametrize("seed", range(12))
def test_both_searches_find_the_cheapest_path(seed):
    """With a beam so wide that nothing is dropped."""
    rng = np.random.default_rng(seed)
    graph, column = random_graph(rng)
    scores = rng.standard_normal((int(rng.integers(10, 25)), 5)).astype(np.float32)
    best = reference.best_path_cost(graph, column, scores)
    for search in (search_plain, search_fast):
        path = search(graph, column, scores, 1000.0)
        assert len(path) == len(scores)
        assert cost_of(graph, column, scores, path) == pytest.approx(best, abs=1e-3)


@pytest.mark.parametrize("beam", [0.5, 3.0])
def test_both_searches_drop_the_same_paths(beam, tri1):
    """A narrow beam makes both fail, or find the same path, on the same utterances."""
    transitions, gmm, feats, graphs, _ = tri1
    column_of = np.append(transitions.tid_to_pdf, -1).astype(np.int32)
    found = missed = 0
    for key, graph in list(graphs.items())[:25]:
        column = np.where(graph.ilabel > 0, column_of[graph.ilabel], -1).astype(np.int32)
        scores = np.float32(0.3) * gmm.log_likelihoods(feats[key])
        a, b = (search(graph, column, scores, beam) for search in (search_plain, search_fast))
        assert (a is None) == (b is None)
        if a is None:
            missed += 1
        else:
            assert np.mean(graph.ilabel[a] == graph.ilabel[b]) > 0.99
            found += 1
    assert found


def test_the_search_changes_over_without_a_change_of_result(tri1, monkeypatch):
    import ngsgd.hmm.viterbi as viterbi

    transitions, gmm, feats, graphs, kaldis = tri1
    monkeypatch.setattr(viterbi, "_PLAIN_FRAMES", 200)
    aligner = Aligner(transitions, AlignOptions())
    assert isinstance(aligner._search, Searcher)
    for key in list(graphs)[:4]:
        found = aligner.align(graphs[key], lambda pdfs, key=key: gmm.log_likelihoods(feats[key], pdfs))
        assert np.array_equal(found.tids, kaldis[key])
    assert aligner._search._frames > 200


def test_reading_graphs_agrees_with_openfst(tri1):
    import kaldifst

    graph = next(iter(tri1[3].values()))
    fst = graph.to_vector()
    data = fst_bytes(kaldifst.StdVectorFst(fst))
    again = read_fst_arrays(TokenReader(io.BufferedReader(io.BytesIO(data)), "x"))
    for name in ("final", "offset", "ilabel", "olabel", "weight", "nextstate"):
        assert np.array_equal(getattr(again, name), getattr(graph, name)), name
    for cut in (30, 80, len(data) // 2, len(data) - 1):
        with pytest.raises(DataError):
            read_fst_arrays(TokenReader(io.BufferedReader(io.BytesIO(data[:cut])), "x"))


def one_phone(transitions, phone=6):
    """The graph of one phone of three states, in Kaldi's order: the transition, then the self-loop."""
    tuples = [t for t in transitions.tuples.tolist() if t[0] == phone][:3]
    tids = [int(transitions.state_to_tid[transitions.transition_state(*t)]) for t in tuples]
    source = np.array([0, 1, 1, 2, 2, 3])
    labels = np.array([tids[0] + 1, tids[0], tids[1] + 1, tids[1], tids[2] + 1, tids[2]])
    target = np.array([1, 1, 2, 2, 3, 3])
    final = np.array([np.inf, np.inf, np.inf, 0], np.float32)
    return FstArrays.from_arcs(0, final, source, labels, labels, np.zeros(6), target)


def test_too_short_and_foreign_utterances_say_so(tri1):
    transitions, gmm, *_ = tri1
    aligner = Aligner(transitions, AlignOptions())
    graph = one_phone(transitions)
    assert min_frames(graph) == 3
    x = np.zeros((2, gmm.dim), np.float32)
    with pytest.raises(DataError, match="2 frames are too short for its transcript, which needs at least 3"):
        aligner.align(graph, lambda pdfs: gmm.log_likelihoods(x, pdfs))
    graph.ilabel[0] = 5000
    with pytest.raises(DataError, match="transition-id 5000"):
        aligner.align(graph, lambda pdfs: gmm.log_likelihoods(x, pdfs))
    with pytest.raises(DataError, match="beams make no sense"):
        Aligner(transitions, AlignOptions(beam=10, retry_beam=5))
    nothing = FstArrays.from_arcs(-1, np.zeros(0), *[np.zeros(0, np.int32)] * 5)
    with pytest.raises(DataError, match="graph is empty"):
        aligner.align(nothing, lambda pdfs: gmm.log_likelihoods(x, pdfs))


def test_retry_beam(tri1):
    """What a narrow beam loses the second attempt finds, and is reported."""
    transitions, gmm, feats, graphs, _ = tri1
    narrow = Aligner(transitions, AlignOptions(beam=0.01, retry_beam=0, acoustic_scale=1.0))
    twice = Aligner(transitions, AlignOptions(beam=0.01, retry_beam=1e5, acoustic_scale=1.0))
    lost = 0
    for key in list(graphs)[:20]:  # frames in disorder mislead the search
        x = np.random.default_rng(0).permutation(feats[key])
        likes = lambda pdfs, x=x: gmm.log_likelihoods(x, pdfs)  # noqa: E731
        try:
            narrow.align(graphs[key], likes)
        except DataError as error:
            assert "within beam 0.01" in str(error)
            lost += 1
            assert twice.align(graphs[key], likes).retried
    assert lost


def test_careful_alignment_refuses_what_goes_on_after_the_transcript(tri1):
    """The recording said twice, the transcript once: careful says no, careless squeezes it in; else they agree."""
    transitions, gmm, feats, graphs, kaldis = tri1
    careful = Aligner(transitions, AlignOptions(careful=True))
    plain = Aligner(transitions, AlignOptions())
    refused = 0
    for key in list(graphs)[:6]:
        once = lambda pdfs, key=key: gmm.log_likelihoods(feats[key], pdfs)  # noqa: E731
        twice = lambda pdfs, key=key: np.tile(gmm.log_likelihoods(feats[key], pdfs), (2, 1))  # noqa: E731
        found = careful.align(graphs[key], once)
        assert np.mean(found.tids == kaldis[key]) > 0.99
        plain.align(graphs[key], twice)
        try:
            careful.align(graphs[key], twice)
        except DataError:
            refused += 1
    assert refused >= 5


def test_equal_alignment_is_a_path_of_equal_parts(tri1):
    transitions, _, feats, graphs, _ = tri1
    for key, graph in list(graphs.items())[:20]:
        frames = len(feats[key])
        tids = equal_align(graph, frames, np.random.default_rng(1))
        assert len(tids) == frames and tids.dtype == np.int32
        assert np.array_equal(tids, equal_align(graph, frames, np.random.default_rng(1)))
        scores = np.full((frames, transitions.num_transition_ids), -1000.0, np.float32)
        scores[np.arange(frames), tids - 1] = 0.0
        assert np.array_equal(graph.ilabel[search_plain(graph, graph.ilabel - 1, scores, 1e5)], tids)
        state = transitions.tid_to_state[tids]
        runs = np.diff(np.flatnonzero(np.concatenate([[True], state[1:] != state[:-1], [True]])))
        can_repeat = runs[runs > 1]
        assert can_repeat.max() - can_repeat.min() <= 2 + runs.max() // 3  # a state met twice in a row counts double
    graph = one_phone(transitions)
    assert np.bincount(transitions.tid_to_state[equal_align(graph, 12, np.random.default_rng(0))])[-3:].max() == 4
    with pytest.raises(DataError, match="2 frames are too short"):
        equal_align(graph, 2, np.random.default_rng(0))
