"""Decoding: the search against an exhaustive one, kaldi-decoder and Kaldi's error counts; what cannot be decoded."""

from types import SimpleNamespace

import numpy as np
import pytest

from ngsgd.decode import decoder
from ngsgd.decode.search import DecodingGraph, SearchOptions, search
from ngsgd.errors import DataError
from ngsgd.kaldi_io.fst import FstArrays, read_fst
from ngsgd.kaldi_io.tables import SequentialReader, Writer
from tests.reference.viterbi import best_words

WIDE = SearchOptions(beam=1e4, lattice_beam=1e3, acoustic_scale=0.5, max_active=10**9, min_active=1)


def transitions(num_ids, num_pdfs=None):
    """A transition model as decoding sees it: transition-id i has pdf i − 1, or i − 1 modulo the number of pdfs."""
    num_pdfs = num_pdfs or num_ids
    pdf = np.concatenate(([-1], np.arange(num_ids) % num_pdfs)).astype(np.int32)
    return SimpleNamespace(num_transition_ids=num_ids, num_pdfs=num_pdfs, tid_to_pdf=pdf)


def random_graph(rng, states=12, ids=6):
    """Consuming arcs anywhere, epsilons only to higher states (no cycles)."""
    source, ilabel, nextstate = [], [], []
    for s in range(states):
        for _ in range(rng.integers(1, 4)):
            source.append(s), ilabel.append(rng.integers(1, ids + 1)), nextstate.append(rng.integers(states))
        if s + 1 < states and rng.random() < 0.6:
            source.append(s), ilabel.append(0), nextstate.append(rng.integers(s + 1, states))
    words = np.where(rng.random(len(source)) < 0.4, rng.integers(1, 5, len(source)), 0)
    final = np.where(rng.random(states) < 0.5, rng.random(states), np.inf)
    weight = rng.random(len(source)) * 2
    return FstArrays.from_arcs(0, final, np.array(source), np.array(ilabel), words, weight, np.array(nextstate))


@pytest.mark.parametrize("seed", range(12))
def test_wide_search_is_exhaustive_at_every_scale_and_penalty(seed):
    rng = np.random.default_rng(seed)
    graph, model = random_graph(rng), transitions(6)
    loglikes = rng.normal(size=(9, 6)).astype(np.float32) * 4
    if not np.isfinite(best_words(graph, model.tid_to_pdf, loglikes, 0.5)[0]):
        pytest.skip("no complete path")
    lattice = search(DecodingGraph(graph, model), loglikes, WIDE)
    assert lattice.complete
    for scale, penalty in ((0.5, 0.0), (0.1, 0.0), (1.0, 0.7), (0.3, -0.5)):
        cost, words = best_words(graph, model.tid_to_pdf, loglikes, scale, penalty)
        path = lattice.best_path(scale, penalty)
        assert path.graph_cost + scale * path.acoustic_cost + penalty * len(path.words) == pytest.approx(cost, abs=1e-4)
        assert tuple(path.words) == words
        assert len(path.transition_ids) == 9


def test_the_interval_of_pruning_changes_nothing():
    rng = np.random.default_rng(1)
    graph = DecodingGraph(random_graph(rng, states=40, ids=8), transitions(8))
    loglikes = rng.normal(size=(70, 8)).astype(np.float32) * 3
    lattices = [
        search(graph, loglikes, SearchOptions(beam=6.0, lattice_beam=3.0, acoustic_scale=1.0, prune_interval=n))
        for n in (2, 7, 1000)
    ]
    assert len({(x.num_states, x.num_arcs) for x in lattices}) == 1
    assert np.allclose(
        np.sort(lattices[0].graph + lattices[0].acoustic), np.sort(lattices[2].graph + lattices[2].acoustic)
    )


def test_what_is_outside_the_lattice_beam_is_gone_and_nothing_else():
    rng = np.random.default_rng(2)
    graph = DecodingGraph(random_graph(rng, states=40, ids=8), transitions(8))
    loglikes = rng.normal(size=(30, 8)).astype(np.float32)
    wide = search(graph, loglikes, SearchOptions(beam=50.0, lattice_beam=20.0, acoustic_scale=1.0))
    narrow = search(graph, loglikes, SearchOptions(beam=50.0, lattice_beam=2.0, acoustic_scale=1.0))
    assert 0 < narrow.num_arcs < wide.num_arcs / 3
    # Every arc lies on a complete path within the beam of the best.
    cost = narrow.graph + narrow.acoustic
    forward, backward = np.full(narrow.num_states, np.inf), narrow.final.copy()
    forward[0] = 0
    for k in range(narrow.num_arcs):
        forward[narrow.dst[k]] = min(forward[narrow.dst[k]], forward[narrow.src[k]] + cost[k])
    for k in reversed(range(narrow.num_arcs)):
        backward[narrow.src[k]] = min(backward[narrow.src[k]], backward[narrow.dst[k]] + cost[k])
    through = forward[narrow.src] + cost + backward[narrow.dst]
    assert (through <= backward[0] + 2.0 + 1e-4).all()


def test_max_active_limits_and_min_active_widens():
    rng = np.random.default_rng(3)
    graph = DecodingGraph(random_graph(rng, states=200, ids=8), transitions(8))
    loglikes = rng.normal(size=(40, 8)).astype(np.float32)
    free, few, many = (
        search(graph, loglikes, SearchOptions(beam=beam, lattice_beam=beam, acoustic_scale=1.0, max_active=high,
                                              min_active=low)).num_arcs
        for beam, high, low in ((8.0, 7000, 1), (8.0, 5, 1), (0.1, 7000, 150))
    )  # fmt: skip
    assert few < free / 2
    assert many > 0


def chain(length, final=True):
    """A graph that consumes exactly `length` frames."""
    n = np.arange(length)
    ends = np.full(length + 1, np.inf)
    ends[-1] = 0.0 if final else np.inf
    return DecodingGraph(FstArrays.from_arcs(0, ends, n, n + 1, n + 1, n * 0.0, n + 1), transitions(length))


def test_no_final_state_is_said_and_nothing_alive_is_an_error():
    loglikes = np.zeros((5, 5), np.float32)
    assert search(chain(5), loglikes, WIDE).complete
    partial = search(chain(5), loglikes[:3], WIDE)
    assert not partial.complete
    assert partial.best_path().words.tolist() == [1, 2, 3]
    with pytest.raises(DataError, match="nothing alive"):
        search(chain(3), np.zeros((5, 3), np.float32), WIDE)


@pytest.mark.parametrize(
    ("loglikes", "message"),
    [
        (np.zeros((4, 6), np.float32), r"shape \(4, 6\), the model has 5 pdfs"),
        (np.zeros((0, 5), np.float32), "no frames"),
        (np.full((4, 5), np.nan, np.float32), "NaN"),
    ],
)
def test_likelihoods_that_do_not_fit_are_refused(loglikes, message):
    with pytest.raises(DataError, match=message):
        search(chain(5), loglikes, WIDE)


def test_a_graph_of_another_model_is_refused():
    n = np.arange(3)
    fst = FstArrays.from_arcs(0, np.zeros(4), n, n + 1, n, n * 0.0, n + 1)
    with pytest.raises(DataError, match=r"input labels up to 3, the model has transition-ids 1..2"):
        DecodingGraph(fst, transitions(2))


@pytest.mark.parametrize("seed", range(6))
def test_posteriors_are_shares_of_the_paths(seed):
    """Against all paths, one by one: of a frame and a transition-id, the share of exp(-cost) that goes through it."""
    rng = np.random.default_rng(seed)
    loglikes = rng.normal(size=(6, 6)).astype(np.float32)
    lattice = search(DecodingGraph(random_graph(rng, states=6), transitions(6)), loglikes, WIDE)
    shares, total = {}, 0.0

    def follow(state, cost, taken):
        nonlocal total
        if np.isfinite(lattice.final[state]):
            share = np.exp(-cost - lattice.final[state])
            total += share
            for place in enumerate(taken):
                shares[place] = shares.get(place, 0.0) + share
        for k in np.flatnonzero(lattice.src == state):
            tid = int(lattice.transition_id[k])
            more = lattice.graph[k] + 0.3 * lattice.acoustic[k]
            follow(lattice.dst[k], cost + more, [*taken, tid] if tid else taken)

    follow(0, 0.0, [])
    frame, tid, posterior = lattice.posteriors(0.3)
    assert frame.tolist() == sorted(frame.tolist())
    ours = dict(zip(zip(frame.tolist(), tid.tolist()), posterior))
    assert ours.keys() == shares.keys()
    assert all(ours[place] == pytest.approx(share / total) for place, share in shares.items())
    np.testing.assert_allclose(np.bincount(frame, posterior), 1.0)


def test_words_and_alignments_are_those_of_kaldi_decoder(golden):
    import kaldi_decoder
    import kaldifst

    from ngsgd.hmm.transitions import read_transition_model

    model = read_transition_model(f"{golden}/nnet2/final.mdl")
    fst = read_fst(f"{golden}/gmm/tri3b/HCLG.fst")
    graph = DecodingGraph(FstArrays.from_fst(fst), model)
    beams = kaldi_decoder.FasterDecoderOptions(beam=15.0, max_active=7000, min_active=200)
    for _, loglikes in SequentialReader(f"ark:{golden}/ops/loglikes.ark", "matrix"):
        path = search(graph, loglikes, SearchOptions()).best_path(0.1)
        scores = np.ascontiguousarray(np.float32(0.1) * loglikes[:, model.tid_to_pdf[1:]])
        reference = kaldi_decoder.FasterDecoder(fst, beams)
        decodable = kaldi_decoder.DecodableCtc(scores)
        reference.decode(decodable)
        _, ids, words, weight = kaldifst.get_linear_symbol_sequence(reference.get_best_path()[1])
        assert path.words.tolist() == list(words)
        assert path.transition_ids.tolist() == list(ids)
        total = sum(float(x) for x in str(weight).split(","))
        assert path.graph_cost + 0.1 * path.acoustic_cost == pytest.approx(total, rel=1e-3)


@pytest.fixture
def corpus(golden, run, tmp_path):
    """data/test of the digit corpus, as Kaldi left it."""
    data = tmp_path / "data"
    data.mkdir()
    feats = f"ark:cat {golden}/feats/raw_mfcc_test.1.ark {golden}/feats/raw_mfcc_test.2.ark |"
    run("copy-feats", feats, "ark,scp:data/f.ark,data/feats.scp")
    run("copy-feats", f"ark:{golden}/feats/cmvn_test.ark", "ark,scp:data/c.ark,data/cmvn.scp")
    for name in ("utt2spk", "text"):
        (data / name).write_bytes((golden / "corpus/test" / name).read_bytes())
    run("utt2spk_to_spk2utt.py", "data/utt2spk", "data/spk2utt")
    return tmp_path


def model_of(corpus, golden, source, graph, files=("final.mdl",)):
    directory = corpus / "model"
    (directory / "graph").mkdir(parents=True)
    for name in files:
        (directory / name).write_bytes((golden / source / name).read_bytes())
    (directory / "graph/HCLG.fst").write_bytes((golden / graph / "HCLG.fst").read_bytes())
    (directory / "graph/words.txt").write_bytes((golden / "lang/words.txt").read_bytes())
    return directory


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("mono", ("final.mdl", "cmvn_opts")),
        pytest.param("tri1", ("final.mdl", "cmvn_opts"), marks=pytest.mark.slow),
        pytest.param("tri2b", ("final.mdl", "cmvn_opts", "final.mat", "splice_opts"), marks=pytest.mark.slow),
    ],
)
def test_error_counts_of_gmms_are_kaldis(corpus, golden, run, name, files):
    directory = model_of(corpus, golden, f"gmm/{name}", f"gmm/{name}", files)
    run("decode_gmm.sh", "--nj", 2, "model/graph", "data", "model/decode")
    ours = (directory / "decode/scoring/best_wer").read_text()
    kaldis = (golden / "gmm" / name / "best_wer").read_text()
    assert ours.partition("]")[0] == kaldis.partition("]")[0]
    again = run("decode_gmm.sh", "--nj", 2, "model/graph", "data", "model/decode")
    assert "%WER" in again.stdout
    assert "is done already" in (directory / "decode/log/decode.1.log").read_text()


def test_error_counts_of_a_network_with_ivectors_are_kaldis(corpus, golden, run):
    directory = model_of(corpus, golden, "nnet2_iv", "gmm/tri3b")
    (directory / "cmvn_opts").write_text("--norm-means=false\n")
    iv = golden / "ivector/test"
    (corpus / "iv").mkdir()
    run("copy-feats", f"ark:cat {iv}/ivector_online.1.ark {iv}/ivector_online.2.ark |",
        "ark,scp:iv/i.ark,iv/ivector_online.scp")  # fmt: skip
    (corpus / "iv/ivector_period").write_text("10\n")
    (directory / "graph/num_pdfs").write_text("96\n")
    run("decode_nnet.sh", "--nj", 2, "--online-ivector-dir", "iv", "model/graph", "data", "model/decode")
    ours = (directory / "decode/scoring/best_wer").read_text()
    assert ours.partition("]")[0] == (golden / "nnet2_iv/decode/best_wer").read_text().partition("]")[0]
    (directory / "graph/num_pdfs").write_text("88\n")
    refused = run("decode_nnet.sh", "--online-ivector-dir", "iv", "model/graph", "data", "model/other", status=1)
    assert "made for 88 pdfs" in refused.stderr and "has 96" in refused.stderr


def test_a_model_of_adapted_features_asks_for_transforms(corpus, golden, run):
    directory = model_of(corpus, golden, "gmm/mono", "gmm/mono", ("final.mdl", "cmvn_opts"))
    (directory / "speaker_transforms").write_text("true\n")
    refused = run("decode_gmm.sh", "model/graph", "data", "model/decode", status=1)
    assert "--transform-dir" in refused.stderr and not (directory / "decode").exists()
    refused = run("decode_gmm.sh", "--transform-dir", "none", "model/graph", "data", "model/decode", status=1)
    assert "no such file: none/num_jobs" in refused.stderr


def decode_table(golden, tmp_path, entries, **options):
    with Writer(f"ark:{tmp_path}/ll", "matrix") as out:
        for key, value in entries.items():
            out.write(key, value)
    return decoder.decode(
        f"{golden}/nnet2/final.mdl", f"{golden}/gmm/tri3b/HCLG.fst", f"{golden}/lang/words.txt", f"ark:{tmp_path}/ll",
        f"ark:{tmp_path}/hyp", decoder.DecodeOptions(log_likelihoods=True, **options), SearchOptions(),
    )  # fmt: skip


def test_an_utterance_that_cannot_be_decoded_is_named_and_left_out(golden, tmp_path, caplog):
    good = dict(zip("abc", (v for _, v in SequentialReader(f"ark:{golden}/ops/loglikes.ark", "matrix"))))
    bad = {"nan": np.full((50, 96), np.nan, np.float32), "narrow": np.zeros((50, 95), np.float32)}
    done = decode_table(golden, tmp_path, {**good, **bad}, min_lmwt=9, max_lmwt=10, word_penalties="0,0.5")
    assert done == (3, 2)
    assert "skipped nan: " in caplog.text and "skipped narrow: " in caplog.text
    keys = [line.split()[0] for line in (tmp_path / "hyp").read_text().splitlines()]
    assert keys[:4] == ["9_0.0_a", "9_0.5_a", "10_0.0_a", "10_0.5_a"] and len(keys) == 12
    (tmp_path / "hyp").unlink()
    with pytest.raises(DataError, match="nothing decoded, 2 failed"):
        decode_table(golden, tmp_path, bad)
    assert not (tmp_path / "hyp").exists()


@pytest.mark.parametrize("bad", [{"word_penalties": "0,x"}, {"min_lmwt": 0}, {"min_lmwt": 9, "max_lmwt": 8}])
def test_a_grid_that_makes_no_sense_is_refused(bad):
    with pytest.raises(DataError, match="expected"):
        decoder.DecodeOptions(**bad).grid()


def test_ivectors_are_repeated_for_their_period():
    pasted = decoder.paste_ivectors(np.zeros((25, 2)), np.arange(3.0)[:, None], 10)
    assert pasted.shape == (25, 3)
    assert pasted[[0, 9, 10, 24], 2].tolist() == [0, 0, 1, 2]
    with pytest.raises(DataError, match="25 frames of features, 5 i-vectors"):
        decoder.paste_ivectors(np.zeros((25, 2)), np.zeros((5, 1)), 10)
