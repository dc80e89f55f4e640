"""Language models: training over a vocabulary, checking ARPA files, G.fst."""

import math
from collections import Counter

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.kaldi_io.fst import fst_bytes, read_fst
from ngsgd.lang.arpa import check_arpa, read_arpa
from ngsgd.lang.ngram import NgramOptions, arpa_lines, count_ngrams, estimate, sentences_of, train_ngram
from ngsgd.lang.symbols import SymbolTable

TEXT = "a b c\na b\nb c a b\nc\na c c b\nd a b c\n"
ARPA = """\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-1.0\t</s>
-99\t<s>\t-0.30103
-0.5\ta\t-0.1
-0.7\tb

\\2-grams:
-0.2\t<s> a
-0.4\ta b

\\end\\
"""


@pytest.fixture
def corpus(tmp_path):
    """words.txt with a word never seen (z), a silence word and an unknown-word symbol; a text."""
    words = SymbolTable.numbered(["!SIL", "<UNK>", *"abcdz", "#0", "<s>", "</s>"])
    (tmp_path / "words.txt").write_text(words.text())
    (tmp_path / "text").write_text(TEXT)
    return tmp_path


def trained(corpus, **options):
    train_ngram(str(corpus / "words.txt"), str(corpus / "text"), str(corpus / "lm.arpa"), NgramOptions(**options))
    return read_arpa(str(corpus / "lm.arpa"))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_probabilities_sum_to_one_in_every_context(corpus, order):
    model = trained(corpus, order=order)
    vocabulary = [*"abcdz", "</s>"]
    contexts = [(), *(h for entries in model.entries[:-1] for h in entries if h[-1] != "</s>")]
    assert len(contexts) == [1, 7, 18][order - 1]
    for context in contexts:
        assert sum(10 ** model.log10_probability([*context, w]) for w in vocabulary) == pytest.approx(1.0, abs=1e-5)


def test_words_never_seen_get_a_share_and_symbols_none(corpus):
    model = trained(corpus)
    unigrams = {w: p for (w,), (p, _) in model.entries[0].items()}
    assert -3.0 < unigrams["z"] < min(p for w, p in unigrams.items() if w not in ("z", "<s>"))
    assert not {"!SIL", "<UNK>", "<eps>", "#0"} & set(unigrams)
    assert unigrams["<s>"] == -99.0


def test_kneser_ney_numbers_of_a_small_text():
    """Against the formulas at the head of ngsgd/lang/ngram.py, counted here by hand from TEXT."""
    sentences = [line.split() for line in TEXT.splitlines()]
    counts = count_ngrams(sentences, 2)
    estimate(counts, "abcdz")
    model = check_arpa("".join(arpa_lines(counts)).splitlines(), "x", keep=True)
    bigrams = Counter((u, w) for s in sentences for u, w in zip(["<s>", *s], [*s, "</s>"], strict=True))
    once, twice = (sum(c == k for c in bigrams.values()) for k in (1, 2))
    discount = min(once / (once + 2 * twice), 0.9)
    after_a = sum(c for (u, _), c in bigrams.items() if u == "a")
    left_over = discount * sum(u == "a" for u, _ in bigrams) / after_a
    assert 10 ** model.entries[0]["a",][1] == pytest.approx(left_over, rel=1e-5)
    direct = (bigrams["a", "b"] - discount) / after_a
    expected = direct + left_over * 10 ** model.entries[0]["b",][0]
    assert 10 ** model.entries[1]["a", "b"][0] == pytest.approx(expected, rel=1e-5)
    left = Counter(w for _, w in bigrams)  # distinct words before w
    once, twice = (sum(c == k for c in left.values()) for k in (1, 2))
    discount, total = once / (once + 2 * twice), sum(left.values())
    spread = len(left) * discount / total / 6
    assert 10 ** model.entries[0]["a",][0] == pytest.approx((left["a"] - discount) / total + spread, rel=1e-5)
    assert 10 ** model.entries[0]["z",][0] == pytest.approx(spread, rel=1e-5)


def test_ngrams_seen_once_only_are_likelier_than_those_never_seen():
    counts = count_ngrams([["a", "b"], ["c", "d"]], 3)
    estimate(counts, "abcd")
    model = check_arpa("".join(arpa_lines(counts)).splitlines(), "x", keep=True)
    assert model.sentence_log10(["a", "b"]) > model.sentence_log10(["b", "a"]) > -20


def test_pruning_drops_ngrams_and_keeps_sums(corpus):
    choices = [np.random.default_rng(i).choice(list("aabbcd"), 6) for i in range(50)]
    (corpus / "text").write_text("\n".join(map(" ".join, choices)))
    full, pruned = trained(corpus), trained(corpus, prune=1e-3)
    assert pruned.counts[2] < full.counts[2] and pruned.counts[0] == full.counts[0]
    for context in [(), ("a",), ("a", "b"), ("<s>", "d")]:
        total = sum(10 ** pruned.log10_probability([*context, w]) for w in [*"abcdz", "</s>"])
        assert total == pytest.approx(1, abs=1e-4)


def test_unknown_words_are_listed_with_counts(corpus, run):
    (corpus / "text").write_text("a x b x\ny a\n")
    result = run("ngram-train", "words.txt", "text", "lm.arpa")
    assert "3 tokens of 2 words" in result.stderr and "x (2), y (1)" in result.stderr
    assert ("<unk>",) in read_arpa(str(corpus / "lm.arpa")).entries[0]
    result = run("arpa-to-fst", "words.txt", "lm.arpa", "G.fst")
    assert "dropped n-grams with 1 words" in result.stderr and "<unk>" in result.stderr


def test_reserved_words_in_the_text_are_refused_with_their_line(corpus):
    (corpus / "text").write_text("a b\na </s>\n")
    with pytest.raises(DataError, match="text:2"):
        list(sentences_of(str(corpus / "text"), {"a", "b"}, "<unk>", Counter()))


def test_grammar_scores_sentences_as_the_model(corpus, run):
    import kaldifst

    model = trained(corpus)
    run("arpa-to-fst", "words.txt", "lm.arpa", "G.fst")
    grammar = read_fst(str(corpus / "G.fst"))
    words = SymbolTable.read(str(corpus / "words.txt"))
    kaldifst.arcsort(grammar, "ilabel")
    assert grammar.is_ilabel_sorted
    for sentence in ["a b c", "a b", "d a b c", "z", "d d d", "c z a b"]:
        # #0 may be passed anywhere: a loop of it at each state of the sentence
        acceptor = kaldifst.make_linear_acceptor([words[w] for w in sentence.split()])
        kaldifst.add_self_loops(acceptor, [0], [words["#0"]])
        path = kaldifst.shortest_path(kaldifst.compose(acceptor, grammar))
        _, _, outputs, cost = kaldifst.get_linear_symbol_sequence(path)
        cost = cost if isinstance(cost, float) else cost.value
        assert [words.symbol(w) for w in outputs] == sentence.split()
        expected = -math.log(10) * model.sentence_log10(sentence.split())
        # the best path may forget its history early, where that serves the words after; not in what was seen
        assert expected - 1.0 < cost < expected + 1e-3
        if sentence in TEXT.splitlines():
            assert cost == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ngram 1=4", "ngram 1=5", ":11: expected 5 1-grams by the header, found 4"),
        ("ngram 2=2\n", "ngram 3=2\n", ":3: expected 'ngram 2=COUNT'"),
        ("\\data\\\n", "", "no \\\\data"),
        ("\\end\\\n", "", "cut off"),
        ("-0.5\ta\t-0.1", "-0.5\ta\tx", ":8: expected numbers"),
        ("-0.5\ta\t-0.1", "0.5\ta\t-0.1", ":8: expected a log10 probability"),
        ("-0.5\ta\t-0.1", "-inf\ta", ":8: expected a log10 probability"),
        ("-0.4\ta b", "-0.4\ta b c d", ":13: expected a 2-gram"),
        ("-0.4\ta b", "-0.4\t<s> a", ":13: the 2-gram '<s> a' is given twice"),
        ("\\2-grams:", "\\3-grams:", "expected .*2-grams:, got"),
        ("</s>", "x", "neither|no sentence"),
    ],
)
def test_damaged_arpa_files_are_refused_with_the_line(old, new, message, tmp_path, run):
    assert old in ARPA
    text = ARPA.replace(old, new)
    if old == "</s>":
        text = text.replace("<s>", "y")
    with pytest.raises(DataError, match=message):
        check_arpa(text.splitlines(), "lm")
    (tmp_path / "lm.arpa").write_text(text)
    (tmp_path / "words.txt").write_text(SymbolTable.numbered(["a", "b", "#0"]).text())
    result = run("arpa-to-fst", "words.txt", "lm.arpa", "G.fst", status=1)
    assert result.stderr.splitlines()[-1].startswith("ERROR") and not (tmp_path / "G.fst").exists()


def test_ngrams_without_their_beginning_are_counted():
    assert check_arpa(ARPA.replace("a b", "q b").splitlines(), "lm").orphans == 1
    assert check_arpa(ARPA.splitlines(), "lm").orphans == 0


def test_text_grammar_equals_kaldis(golden, run, tmp_path):
    words = golden / "lang/words.txt"
    run("fst-compile", words, words, golden / "lang_test/G.txt", "G.fst")
    assert (tmp_path / "G.fst").read_bytes() == (golden / "lang_test/G.fst").read_bytes()


def test_text_grammar_faults(run, tmp_path):
    (tmp_path / "words.txt").write_text("<eps> 0\na 1\n")
    for text, message in [
        ("0 0 a b\n0\n", "G.txt:1: symbol 'b'"),
        ("0 0 a a x\n", "G.txt:1: expected a cost"),
        ("0 0 a\n", "G.txt:1: expected 'from to"),
        ("", "empty"),
    ]:
        (tmp_path / "G.txt").write_text(text)
        assert message in run("fst-compile", "words.txt", "words.txt", "G.txt", "G.fst", status=1).stderr


def test_make_lm_from_text_arpa_and_grammar(golden, run, tmp_path):
    lang = golden / "lang"
    text = [line.split(None, 1)[1] for line in (golden / "corpus/train/text").read_text().splitlines()]
    (tmp_path / "text").write_text("\n".join(text) + "\n")
    run("make_lm.sh", "--order", "2", lang, "text", "lang_text")
    assert (tmp_path / "lang_text/L.fst").read_bytes() == (lang / "L.fst").read_bytes()
    assert read_arpa(str(tmp_path / "lang_text/lm.arpa")).counts[0] == 12
    run("make_lm.sh", "--from=arpa", lang, "lang_text/lm.arpa", "lang_arpa")
    graphs = [fst_bytes(read_fst(str(tmp_path / d / "G.fst"))) for d in ("lang_text", "lang_arpa")]
    assert graphs[0] == graphs[1]
    run("make_lm.sh", "--from", "grammar", lang, golden / "lang_test/G.txt", "lang_loop")
    assert (tmp_path / "lang_loop/G.fst").read_bytes() == (golden / "lang_test/G.fst").read_bytes()
    assert "up to date" in run("make_lm.sh", lang, "text", "lang_text").stderr
    assert "expected text, arpa" in run("make_lm.sh", "--from", "x", lang, "text", "y", status=2).stderr
