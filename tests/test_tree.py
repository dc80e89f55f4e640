"""Decision trees, from statistics to converted alignments: Kaldi's files byte for byte, an oracle, awkward data."""

import io
import tempfile
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.features.stream import LengthOptions
from ngsgd.gmm.flat_start import flat_model
from ngsgd.gmm.from_tree import gaussians, init_from_tree, leaf_rows
from ngsgd.gmm.model import read_model
from ngsgd.gmm.programs import OccsOptions
from ngsgd.hmm.convert import Converter, ConvertOptions, convert_alignments, read_phone_map
from ngsgd.hmm.phones import is_reordered, split_to_phones
from ngsgd.hmm.topology import Topology
from ngsgd.hmm.transitions import read_transition_model
from ngsgd.hmm.tree import Split, Table, read_tree
from ngsgd.hmm.tree_build import (
    BuildOptions,
    Root,
    best_question,
    build,
    build_tree,
    leaf_of_events,
    leaves_of,
    merge_leaves,
    read_roots,
)
from ngsgd.hmm.tree_cluster import c_library_random, divide, k_means, merge, objective
from ngsgd.hmm.tree_questions import (
    ClusterOptions,
    Questions,
    QuestionsOptions,
    cluster_phones,
    cluster_to_classes,
    cluster_to_questions,
    compile_questions,
    compile_sets,
    read_questions,
)
from ngsgd.hmm.tree_stats import (
    ABSENT,
    ContextOptions,
    TreeAccumulator,
    TreeStats,
    TreeStatsOptions,
    accumulate_tree_stats,
    read_tree_stats,
    sum_tree_stats,
    write_tree_stats,
)
from ngsgd.kaldi_io.stream import TokenReader, TokenWriter, open_writer
from ngsgd.kaldi_io.tables import SequentialReader, Writer

TRIPHONES = ContextOptions()
FLOOR = 0.01


# Kaldi's files


def make_all(golden: Path, work: Path) -> None:
    """Every step from features and alignments to converted alignments, each from what the one before has made."""
    ops, lang, gmm = golden / "gmm/ops", golden / "lang", golden / "gmm"
    accumulate_tree_stats(
        f"{gmm}/mono/final.mdl",
        f"ark:gunzip -c {ops}/delta.ark.gz |",
        f"ark:{ops}/mono_ali.ark",
        f"{work}/treeacc",
        TreeStatsOptions(ci_phones="1:2:3:4:5"),
        TRIPHONES,
        LengthOptions(),
    )
    cluster_phones(f"{work}/treeacc", f"{lang}/phones/sets.int", f"{work}/clustered", ClusterOptions(), TRIPHONES)
    extra = (lang / "phones/extra_questions.int").read_bytes()
    (work / "questions.int").write_bytes((work / "clustered").read_bytes() + extra)
    compile_questions(
        f"{lang}/topo", f"{work}/questions.int", f"{work}/questions.qst", QuestionsOptions(), TRIPHONES, True
    )
    build_tree(
        f"{work}/treeacc",
        f"{lang}/phones/roots.int",
        f"{work}/questions.qst",
        f"{lang}/topo",
        f"{work}/tree",
        BuildOptions(max_leaves=120),
        TRIPHONES,
        True,
    )
    occs = OccsOptions(write_occs=f"{work}/init.occs")
    init_from_tree(f"{work}/tree", f"{work}/treeacc", f"{lang}/topo", f"{work}/init.mdl", occs, True)
    convert_alignments(
        f"{gmm}/mono/final.mdl",
        f"{work}/init.mdl",
        f"{work}/tree",
        f"ark:{ops}/mono_ali.ark",
        f"ark:{work}/converted_ali.ark",
        ConvertOptions(),
    )


MADE = ("treeacc", "questions.int", "questions.qst", "tree", "init.mdl", "init.occs", "converted_ali.ark")


def agreement(golden: Path) -> Iterator[tuple[str, float, float]]:
    """(case, part of the bytes that differ from Kaldi's, bound) for each file of the chain."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        make_all(golden, work)
        for name in MADE:
            ours, theirs = (np.frombuffer((f / name).read_bytes(), np.uint8) for f in (work, golden / "gmm/ops"))
            same = min(len(ours), len(theirs))
            different = np.sum(ours[:same] != theirs[:same]) + abs(len(ours) - len(theirs))
            yield f"decision tree, bytes of {name}", float(different / len(theirs)), 0.0


def test_every_file_of_the_chain_is_kaldis(golden, tmp_path):
    make_all(golden, tmp_path)
    for name in MADE:
        assert (tmp_path / name).read_bytes() == (golden / "gmm/ops" / name).read_bytes(), name


def test_programs_do_the_chain(golden, call, tmp_path):
    """As a user runs them, with statistics of two jobs added up and told what is odd."""
    ops, lang, mono = golden / "gmm/ops", golden / "lang", golden / "gmm/mono/final.mdl"
    items = list(SequentialReader(f"ark:gunzip -c {ops}/delta.ark.gz |", "matrix"))
    for job in (0, 1):
        with Writer(f"ark:{tmp_path}/{job}.ark", "matrix") as out:
            for key, feats in items[job::2]:
                out.write(key, feats)
        accumulated = call(
            "acc-tree-stats", "--ci-phones=1:2:3:4:5", mono, f"ark:{job}.ark", f"ark:{ops}/mono_ali.ark", f"{job}.acc"
        )
        assert "done 72 utterances, failed 0" in accumulated.stderr
    call("sum-tree-stats", "treeacc", "0.acc", "1.acc")
    ours, kaldis = read_tree_stats(f"{tmp_path}/treeacc"), read_tree_stats(f"{ops}/treeacc")
    assert np.array_equal(ours.events, kaldis.events)
    np.testing.assert_allclose(ours.rows, kaldis.rows, rtol=1e-12)
    call("cluster-phones", "treeacc", lang / "phones/sets.int", "questions.int")
    compiled = call("compile-questions", "--binary=false", lang / "topo", "questions.int", "questions.qst")
    assert "no question" not in compiled.stderr
    built = call(
        "build-tree", "--max-leaves=120", "treeacc", lang / "phones/roots.int", "questions.qst", lang / "topo", "tree"
    )
    assert "fewer leaves than asked for" in built.stderr and "55 of 81 phones were never seen: 2 3 4 5" in built.stderr
    call("gmm-init-model", "tree", "treeacc", lang / "topo", "1.mdl")
    alignments = f"ark:{ops}/mono_ali.ark"
    (tmp_path / "text").write_text("".join(f"{key} a word\n" for key, _ in items[:5]) + "stranger x\n")
    converted = call("convert-ali", "--utterances=text", mono, "1.mdl", "tree", alignments, "ark:ali.ark")
    assert "done 5 utterances" in converted.stderr and "1 of 6 utterances of text have no alignment" in converted.stderr
    transitions, _ = read_model(f"{tmp_path}/1.mdl")
    before = dict(SequentialReader(alignments, "int32_vector"))
    old = read_transition_model(str(mono))
    for key, tids in SequentialReader(f"ark:{tmp_path}/ali.ark", "int32_vector"):
        assert np.array_equal(transitions.tid_to_hmm_state[tids], old.tid_to_hmm_state[before[key]])
        assert np.array_equal(transitions.tid_to_phone[tids], old.tid_to_phone[before[key]])


def test_converting_to_the_models_own_tree_changes_nothing(golden):
    """Through another tree and back, too; and alignments in the other order of self-loops."""
    models, trees = {}, {}
    for name in ("tri1", "tri2b"):
        models[name] = read_transition_model(str(golden / f"gmm/{name}/final.mdl"))
        trees[name] = read_tree(str(golden / f"gmm/{name}/tree"))
    same = Converter(models["tri1"], models["tri1"], trees["tri1"])
    there = Converter(models["tri1"], models["tri2b"], trees["tri2b"])
    back = Converter(models["tri2b"], models["tri1"], trees["tri1"])
    plain = Converter(models["tri1"], models["tri1"], trees["tri1"], reorder=False)
    for key, tids in SequentialReader(f"ark:{golden}/gmm/ops/tri1_ali.ark", "int32_vector"):
        assert np.array_equal(same.convert(tids), tids), key
        assert np.array_equal(back.convert(there.convert(tids)), tids), key
        other = plain.convert(tids)
        assert not is_reordered(models["tri1"], other) and not np.array_equal(other, tids)
        for ours, theirs in zip(split_to_phones(models["tri1"], other), split_to_phones(models["tri1"], tids)):
            assert np.array_equal(ours, theirs)
        assert np.array_equal(same.convert(other), tids), key


# Oracles


def frames_and_rows(rng, num, dim=4, count=(3, 30)):
    """Frames of `num` states, and their rows of statistics."""
    frames = [rng.standard_normal((rng.integers(*count), dim)) * 0.7 + rng.standard_normal(dim) for _ in range(num)]
    rows = [np.concatenate([[len(x)], x.sum(axis=0), np.square(x).sum(axis=0)]) for x in frames]
    return frames, np.array(rows)


def log_likelihood(frames):
    """Of frames under their own Gaussian."""
    mean, variance = frames.mean(axis=0), np.maximum(frames.var(axis=0), FLOOR)
    return float(-0.5 * (np.log(2 * np.pi * variance) + (frames - mean) ** 2 / variance).sum())


def random_stats(rng, phones=(1, 2, 3, 4), classes=2, events=60):
    """Statistics of random triphones."""
    every = list(product(range(classes), [0, *phones], phones, [0, *phones]))
    chosen = [every[i] for i in sorted(rng.choice(len(every), events, replace=False))]
    frames, rows = frames_and_rows(rng, events)
    return TreeStats(np.array(chosen), rows, FLOOR), frames


def test_the_objective_is_the_likelihood_of_the_frames():
    frames, rows = frames_and_rows(np.random.default_rng(0), 7)
    np.testing.assert_allclose(objective(rows, FLOOR), [log_likelihood(x) for x in frames], rtol=1e-6)
    together = log_likelihood(np.concatenate(frames))
    assert objective(rows.sum(axis=0), FLOOR) == pytest.approx(together, rel=1e-6)
    constant = np.concatenate([[5], np.full(4, 10.0), np.full(4, 20.0)])
    assert objective(constant, FLOOR) == pytest.approx(log_likelihood(np.full((5, 4), 2.0)), rel=1e-6)
    assert objective(np.zeros(9), FLOOR) == 0


@pytest.mark.parametrize("key", [-1, 0, 1, 2])
def test_the_best_question_is_that_of_brute_force(key):
    rng = np.random.default_rng(key + 5)
    stats, frames = random_stats(rng)
    sets = [np.array(s) for s in ([0], [1], [1, 2], [3, 4], [2, 4], [1, 2, 3, 4])]
    questions = Questions({key: sets}, {key: 0})
    which = np.sort(rng.choice(len(frames), 40, replace=False))
    gain, yes_set = best_question(stats, which, key, questions)
    gains = []
    for s in sets:
        yes = np.isin(stats.values(key)[which], s)
        parts = [[frames[i] for i in which[side]] for side in (yes, ~yes)]
        divided = sum(log_likelihood(np.concatenate(p)) for p in parts if p)
        gains.append(divided - log_likelihood(np.concatenate([frames[i] for i in which])))
    assert gain == pytest.approx(max(gains), rel=1e-4)
    assert yes_set.tolist() == sets[int(np.argmax(gains))].tolist()
    refined, values = best_question(stats, which, key, Questions({key: sets}, {key: 5}))
    yes = np.isin(stats.values(key)[which], values)
    parts = [log_likelihood(np.concatenate([frames[i] for i in which[side]])) for side in (yes, ~yes)]
    assert refined >= gain
    assert refined == pytest.approx(sum(parts) - log_likelihood(np.concatenate([frames[i] for i in which])), rel=1e-4)


def test_of_equal_questions_the_first_is_asked():
    """Questions that divide the values seen alike, or the other way round, are one question."""
    stats, _ = random_stats(np.random.default_rng(1), phones=(1, 2), events=30)
    for first in ([1, 7], [2, 9]):
        sets = [np.array(s) for s in ([5], first, [1], [2], [1, 2])]
        _, yes_set = best_question(stats, np.arange(30), 1, Questions({1: sets}, {1: 0}))
        assert yes_set.tolist() == first


def test_merging_takes_the_closest_pair_until_it_costs_too_much():
    rng = np.random.default_rng(2)
    frames, rows = frames_and_rows(rng, 8)

    def cost(a, b):
        x, y = (np.concatenate([frames[i] for i in group]) for group in (a, b))
        return log_likelihood(x) + log_likelihood(y) - log_likelihood(np.concatenate([x, y]))

    for threshold in (10.0, 30.0, 60.0):
        groups = [frozenset([i]) for i in range(8)]
        while len(groups) > 1:
            closest = min(((cost(a, b), a, b) for a, b in combinations(groups, 2)), key=lambda pair: pair[0])
            if closest[0] > threshold:
                break
            groups = [g for g in groups if g not in closest[1:]] + [closest[1] | closest[2]]
        merged = merge([rows], FLOOR, threshold)[0]
        assert {frozenset(np.flatnonzero(merged == k).tolist()) for k in range(merged.max() + 1)} == set(groups)
    merged = merge([rows[:5], rows[5:]], FLOOR, at_least=3)
    assert sum(len(set(m.tolist())) for m in merged) == 3 and {len(m) for m in merged} == {5, 3}


def test_k_means_finds_what_is_apart():
    rng = np.random.default_rng(3)
    parts = [rng.standard_normal((40, 3)) + 20 * (i % 3) for i in range(9)]
    rows = np.array([np.concatenate([[len(x)], x.sum(0), np.square(x).sum(0)]) for x in parts])
    gain, assignment = k_means(rows, 3, FLOOR, c_library_random(), tries=10)
    assert {tuple(assignment[i::3]) for i in range(3)} == {(k, k, k) for k in range(3)}
    apart = [log_likelihood(np.concatenate(parts[i::3])) for i in range(3)]
    assert gain == pytest.approx(sum(apart) - log_likelihood(np.concatenate(parts)), rel=1e-4)
    nodes = divide(rows, FLOOR, c_library_random())
    assert len(nodes) == 17 and sorted(nodes[-1][0]) == list(range(9)) and nodes[-1][1] == 16
    for points, parent in nodes[:-1]:
        assert set(points) < set(nodes[parent][0])
    assert {frozenset(p) for p, _ in nodes} >= {frozenset(range(i, 9, 3)) for i in range(3)}


def test_the_random_numbers_are_the_c_librarys():
    """What a C program prints for rand() on Linux."""
    numbers = c_library_random()
    assert [next(numbers) for _ in range(4)] == [1804289383, 846930886, 1681692777, 1714636915]


# Shapes of trees


TOPOLOGY = b"""<Topology>
<TopologyEntry> <ForPhones> 1 2 3 4 5 </ForPhones>
<State> 0 <PdfClass> 0 <Transition> 0 0.5 <Transition> 1 0.5 </State>
<State> 1 <PdfClass> 1 <Transition> 1 0.5 <Transition> 2 0.5 </State>
<State> 2 </State>
</TopologyEntry>
</Topology>
"""


def topology():
    reader = TokenReader(io.BufferedReader(io.BytesIO(TOPOLOGY)), "topo", binary=False)
    return Topology.read(reader)


def questions_for(context=TRIPHONES):
    return compile_sets(topology(), [[1], [2], [1, 2], [3, 4], [3], [5]], context, 0)


ROOTS = [Root((1, 2), True, True), Root((3, 4), False, True), Root((5,), False, False)]


def test_roots_decide_what_is_shared_and_split():
    stats, _ = random_stats(np.random.default_rng(4), phones=(1, 2, 3, 4, 5), events=120)
    for options in (BuildOptions(thresh=5.0), BuildOptions(thresh=5.0, round_num_leaves=False, cluster_thresh=0.0)):
        tree = build(stats, ROOTS, questions_for(), topology(), options, TRIPHONES)
        assert leaves_of(tree.to_pdf) == list(range(tree.num_pdfs)) and tree.num_pdfs > 12
        assert (tree.num_pdfs % 8 == 0) == options.round_num_leaves
        of = {p: {c: set(tree.pdfs_of(p, c)) for c in (0, 1)} for p in (1, 2, 3, 4, 5)}
        assert of[5][0] != of[5][1] and len(of[5][0]) == len(of[5][1]) == 1  # not split, not shared
        assert not of[3][0] & of[3][1] and not (of[3][0] | of[3][1]) & (of[1][0] | of[1][1] | of[5][0])
        assert len(of[3][0] | of[4][0]) > 1
        found = {
            tree.compute(window, c) for window in product([0, 1, 3, 5], [1, 2, 3, 4, 5], [0, 1, 3, 5]) for c in (0, 1)
        }
        assert found <= set(range(tree.num_pdfs)) and len(found) > 10
    most = build(stats, ROOTS, questions_for(), topology(), BuildOptions(max_leaves=7, thresh=0.1), TRIPHONES)
    assert 5 <= most.num_pdfs <= 7


def test_wide_windows_and_phones_without_context():
    """Quinphones; context-independent phones have one event a pdf-class and their leaf ignores the neighbours."""
    context = ContextOptions(context_width=5, central_position=2)
    rng = np.random.default_rng(5)
    _, transitions, _ = flat_model(topology(), 3, None, np.zeros(3), np.ones(3))
    accumulator = TreeAccumulator(transitions, context, [5])
    whole = TreeAccumulator(transitions, context, [5])
    parts = []
    for n in range(40):
        phones = rng.integers(1, 6, size=12)
        tids = np.concatenate([phone_tids(transitions, p, rng) for p in phones])
        feats = (3 * transitions.tid_to_pdf[tids][:, None] + rng.standard_normal((len(tids), 3))).astype(np.float32)
        whole.add(feats, tids)
        accumulator.add(feats, tids)
        if n % 10 == 9:
            parts.append(accumulator.stats(FLOOR))
            accumulator = TreeAccumulator(transitions, context, [5])
    stats = whole.stats(FLOOR)
    assert stats.events.shape[1] == 6 and np.isin(stats.values(0), [ABSENT, *range(6)]).all()
    silence = stats.events[stats.values(2) == 5]
    assert silence.tolist() == [[c, ABSENT, ABSENT, 5, ABSENT, ABSENT] for c in (0, 1)]
    assert stats.rows[:, 0].sum() == sum(p.rows[:, 0].sum() for p in parts)
    roots = [Root((1, 2, 3, 4), True, True), Root((5,), True, True)]
    options = BuildOptions(thresh=50.0, cluster_thresh=0.0, round_num_leaves=False)
    made = build(stats, roots, questions_for(context), topology(), options, context)
    assert made.context_width == 5 and made.compute([0, 0, 5, 1, 2], 1) == made.compute([3, 3, 5, 0, 0], 1)
    assert made.compute([0, 0, 5, 1, 2], 0) != made.compute([0, 0, 5, 1, 2], 1)
    model = gaussians(leaf_rows(made, stats))
    assert model.num_pdfs == made.num_pdfs and np.isfinite(model.params()).all()


def phone_tids(transitions, phone, rng):
    """A random alignment of one phone, reordered."""
    made = []
    for state in range(2):
        first = next(t for t in range(1, transitions.num_transition_ids + 1)
                     if transitions.tid_to_phone[t] == phone and transitions.tid_to_hmm_state[t] == state)  # fmt: skip
        loop, leave = (first, first + 1) if transitions.is_self_loop[first] else (first + 1, first)
        made += [leave] + [loop] * int(rng.integers(0, 3))
    return np.array(made, dtype=np.int32)


@pytest.mark.parametrize("binary", [True, False])
def test_files_come_back(golden, tmp_path, binary):
    stats = read_tree_stats(str(golden / "gmm/ops/treeacc"))
    write_tree_stats(f"{tmp_path}/stats", stats, binary)
    again = read_tree_stats(f"{tmp_path}/stats")
    assert np.array_equal(again.events, stats.events)
    np.testing.assert_allclose(again.rows, stats.rows, rtol=0 if binary else 1e-5)
    questions = read_questions(str(golden / "gmm/ops/questions.qst"))
    out = io.BytesIO()
    questions.write(TokenWriter(out, binary))
    back = Questions.read(TokenReader(io.BufferedReader(io.BytesIO(out.getvalue())), "q", binary=binary))
    assert back.refine == questions.refine and back.sets.keys() == questions.sets.keys()
    for key, sets in questions.sets.items():
        assert [s.tolist() for s in back.sets[key]] == [s.tolist() for s in sets]


# Bad input


def test_phones_never_seen_are_told_and_start_as_all_data(caplog, golden, tmp_path):
    stats, _ = random_stats(np.random.default_rng(6))
    roots = [Root((p,), False, True) for p in (1, 2, 3, 4, 5)]
    with caplog.at_level("INFO"):
        tree = build(stats, roots, questions_for(), topology(), BuildOptions(max_leaves=500, thresh=20.0), TRIPHONES)
    assert "1 of 5 phones were never seen: 5" in caplog.text
    assert "fewer leaves than asked for" in caplog.text and "of 500" in caplog.text
    assert isinstance(tree.to_pdf, Table)
    rows = leaf_rows(tree, stats)
    unseen = tree.pdfs_of(5, 0) + tree.pdfs_of(5, 1)
    assert (rows[unseen, 0] == 0).all() and rows[:, 0].sum() == stats.rows[:, 0].sum()
    model = gaussians(rows)
    total = stats.rows.sum(axis=0)
    np.testing.assert_allclose(model.means()[unseen], np.tile(total[1:5] / total[0], (2, 1)), rtol=1e-5)
    (tmp_path / "topo").write_bytes(TOPOLOGY)
    write_tree_stats(f"{tmp_path}/stats", stats)
    with open_writer(f"{tmp_path}/tree") as w:
        tree.write(w)
    init_from_tree(
        f"{tmp_path}/tree", f"{tmp_path}/stats", f"{tmp_path}/topo", f"{tmp_path}/1.mdl", OccsOptions(), True
    )
    assert f"no statistics for pdf {unseen[0]} of phones 5" in caplog.text


@pytest.mark.parametrize(
    "roots,message",
    [
        ([Root((1, 2), True, True)], "leave out phones that the topology has: 3 4 5"),
        ([*ROOTS, Root((9,), True, True)], "phones that the topology does not have: 9"),
    ],
)
def test_roots_must_cover_all_phones(roots, message):
    stats, _ = random_stats(np.random.default_rng(7))
    with pytest.raises(DataError, match=message):
        build(stats, roots, questions_for(), topology(), BuildOptions(), TRIPHONES)


def test_what_does_not_fit_together_is_refused():
    stats, _ = random_stats(np.random.default_rng(8))
    for context, message in (
        (ContextOptions(1, 0), "windows of 3 phones, --context-width is 1"),
        (ContextOptions(3, 3), "outside a window of 3"),
        (ContextOptions(5, 3), "without a central phone"),
    ):
        with pytest.raises(DataError, match=message):
            build(stats, ROOTS, questions_for(context if context.central_position < 3 else TRIPHONES), topology(),
                  BuildOptions(), context)  # fmt: skip
    with pytest.raises(DataError, match="neither --max-leaves nor --thresh"):
        build(stats, ROOTS, questions_for(), topology(), BuildOptions(thresh=0.0), TRIPHONES)
    with pytest.raises(DataError, match="topology does not have: 77"):
        compile_sets(topology(), [[1, 77]], TRIPHONES, 0)
    with pytest.raises(DataError, match="of 2 sets of phones 0 have statistics in pdf-class 4"):
        cluster_to_questions(stats, [[1, 2], [3, 4]], [4], 1)
    assert len(cluster_to_classes(stats, [[1], [2], [3], [4]], [0, 1], 1, 2)) == 2


@pytest.mark.parametrize(
    "line",
    ["shared 1 2", "shared split", "split shared 1", "shared split one", "shared split 1 1", "shared split 0"],
)
def test_bad_roots_are_named(line, tmp_path):
    path = tmp_path / "roots.int"
    path.write_text(f"not-shared not-split 7 8\n{line}\n")
    with pytest.raises(DataError, match=r"roots.int"):
        read_roots(str(path))
    path.write_text("")
    with pytest.raises(DataError, match="no roots"):
        read_roots(str(path))


def test_empty_and_damaged_statistics(tmp_path):
    path = tmp_path / "stats"
    stats, _ = random_stats(np.random.default_rng(9))
    empty = TreeStats(np.zeros((0, 4)), np.zeros((0, 9)), FLOOR)
    write_tree_stats(str(path), empty)
    with pytest.raises(DataError, match="no statistics in it"):
        read_tree_stats(str(path))
    with pytest.raises(DataError, match="no frames"):
        gaussians(np.zeros((3, 9)))
    for change, message in ((np.nan, "finite"), (-1.0, "at least 0")):
        rows = stats.rows.copy()
        rows[3, 0] = change
        write_tree_stats(str(path), TreeStats(stats.events, rows, FLOOR))
        with pytest.raises(DataError, match=message):
            read_tree_stats(str(path))
    write_tree_stats(str(path), stats)
    write_tree_stats(f"{path}2", TreeStats(stats.events, stats.rows[:, :5], FLOOR))
    with pytest.raises(DataError, match=r"dimension 2, those of .* have 4"):
        sum_tree_stats([str(path), f"{path}2"])
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match="stats"):
        read_tree_stats(str(path))


def test_one_bad_utterance_is_named_and_leaves_no_trace(golden, call, tmp_path):
    ops, mono = golden / "gmm/ops", golden / "gmm/mono/final.mdl"
    alignments = dict(SequentialReader(f"ark:{ops}/mono_ali.ark", "int32_vector"))
    keys = []
    with Writer(f"ark:{tmp_path}/feats.ark", "matrix") as out, Writer(f"ark:{tmp_path}/good.ark", "matrix") as good:
        for key, feats in SequentialReader(f"ark:gunzip -c {ops}/delta.ark.gz |", "matrix"):
            keys.append(key)
            bad = len(keys)
            if bad == 2:
                feats = feats[:-9]
            elif bad == 4:
                feats[5, 3] = np.inf
            elif bad == 6:
                feats = feats[:, :13]
            elif bad != 7:
                good.write(key, feats)
            out.write(key, feats)
            if bad == 12:
                break
    with Writer(f"ark:{tmp_path}/ali.ark", "int32_vector") as out:
        for key in keys:
            if key != keys[6]:
                out.write(key, alignments[key])
    found = call("acc-tree-stats", mono, "ark:feats.ark", "ark:ali.ark", "stats").stderr
    for number, why in ((1, "frames"), (3, "inf at frame 5"), (5, "dimension 13"), (6, "no alignment")):
        assert f"skipped {keys[number]}: " in found and why in found
    assert "done 8 utterances, failed 4" in found
    call("acc-tree-stats", mono, "ark:good.ark", "ark:ali.ark", "good")
    assert (tmp_path / "good").read_bytes() == (tmp_path / "stats").read_bytes()
    refused = call("acc-tree-stats", "--ci-phones=1:x", mono, "ark:good.ark", "ark:ali.ark", "no", status=1)
    assert "1:x" in refused.stderr and not (tmp_path / "no").exists()


def test_alignments_that_cannot_be_converted(golden, tmp_path):
    mono = read_transition_model(str(golden / "gmm/mono/final.mdl"))
    tri1, tree = read_transition_model(str(golden / "gmm/tri1/final.mdl")), read_tree(str(golden / "gmm/tri1/tree"))
    tids = next(iter(SequentialReader(f"ark:{golden}/gmm/ops/mono_ali.ark", "int32_vector")))[1]
    converter = Converter(mono, tri1, tree)
    for bad, message in ((tids[:-1], "before its end"), (tids * 0 + 9999, "another model"), (tids[:0], "empty")):
        with pytest.raises(DataError, match=message):
            converter.convert(bad)
    with pytest.raises(DataError, match="do not belong together"):
        Converter(mono, tri1, read_tree(str(golden / "gmm/tri2b/tree"))).convert(tids)
    with pytest.raises(DataError, match="different topologies"):
        Converter(mono, tri1, tree, phone_map=dict.fromkeys(range(1, 82), 1))
    some = {int(p): int(p) for p in np.unique(mono.tuples[:, 0]) if p != mono.tid_to_phone[tids[-1]]}
    with pytest.raises(DataError, match="--phone-map has nothing for phone"):
        Converter(mono, tri1, tree, phone_map=some).convert(tids)
    path = tmp_path / "map"
    path.write_text("1 2\n1 3\n")
    with pytest.raises(DataError, match="map:2: expected"):
        read_phone_map(str(path))
    path.write_text("1 2\n3 4\n")
    assert read_phone_map(str(path)) == {1: 2, 3: 4}


def test_a_tree_without_a_leaf_for_an_event_says_so():
    stats, _ = random_stats(np.random.default_rng(10))
    tree = build(stats, ROOTS, questions_for(), topology(), BuildOptions(thresh=30.0), TRIPHONES)
    with pytest.raises(DataError, match="no leaf for pdf-class 7"):
        leaf_of_events(tree.to_pdf, TreeStats([[7, 1, 3, 1]], stats.rows[:1], FLOOR))
    with pytest.raises(DataError, match="asks for key 1"):
        leaf_of_events(Split(1, [1], tree.to_pdf, tree.to_pdf), TreeStats([[0, 1, ABSENT, 1]], stats.rows[:1], FLOOR))
    assert merge_leaves(tree.to_pdf, tree.to_pdf, stats, 0.0) is not tree.to_pdf
