"""Pronunciations: look-up, rules, the alignment of letters and phones, the n-gram model, the program."""

import itertools
import zlib

import numpy as np
import pytest

from ngsgd.errors import DataError
from ngsgd.lang.g2p import BEGIN, END, FIRST, G2P, NgramModel, spelling
from ngsgd.lang.letters import align
from ngsgd.lang.pronounce import Pronouncer, cmudict_entries, make_lexicon


@pytest.fixture(scope="module")
def pronouncer():
    return Pronouncer()


@pytest.mark.parametrize(
    ("word", "phones", "source"),
    [
        ("QUEEN", "K W IY N", "dictionary"),
        ("'queen'", "K W IY N", "dictionary"),
        ("nooo", "N OW", "squeezed"),
        ("Half-Witted", "HH AE F W IH T IH D", "hyphen"),
        ("sparky's", "S P AA R K IY Z", "possessive"),
        ("sloth's", "S L OW TH S", "possessive"),
        ("prince's'", "P R IH N S IH Z", "dictionary"),
        ("sloths", "S L OW TH S", "ending"),
        ("finned", "F IH N D", "ending"),
        ("wriggling", "R IH G AH L IH NG", "ending"),
        ("hoaxin'", "HH OW K S IH N", "ending"),
    ],
)
def test_words_of_the_dictionary_and_rules_over_them(pronouncer, word, phones, source):
    found, by = pronouncer(word)
    assert by == source
    assert tuple(phones.split()) in found
    assert "model" not in vars(pronouncer)  # not trained for these


def test_variants_keep_the_order_of_the_dictionary_and_lose_stress(pronouncer):
    assert pronouncer("either")[0] == [("IY", "DH", "ER"), ("AY", "DH", "ER")]


def test_phones_are_the_39_of_cmudict():
    phones = {q for variants in cmudict_entries().values() for phones in variants for q in phones}
    assert len(phones) == 39
    assert all(q.isalpha() for q in phones)


def test_endings_follow_the_last_phone():
    toy = Pronouncer(
        {
            "kiss": [("K", "IH", "S")],
            "hop": [("HH", "AA", "P")],
            "hope": [("HH", "OW", "P")],
            "cry": [("K", "R", "AY")],
            "want": [("W", "AA", "N", "T")],
            "dog": [("D", "AO", "G")],
        }
    )
    expected = {
        "kisses": "K IH S IH Z",
        "hops": "HH AA P S",
        "dogs": "D AO G Z",
        "cries": "K R AY Z",
        "cried": "K R AY D",
        "hoped": "HH OW P T",
        "hopped": "HH AA P T",
        "wanted": "W AA N T IH D",
        "hoping": "HH OW P IH NG",
        "hopping": "HH AA P IH NG",
        "hopin'": "HH OW P IH N",
    }
    assert {w: " ".join(toy(w)[0][0]) for w in expected} == expected


def test_a_word_that_cannot_be_spoken_is_named_and_counted():
    toy = Pronouncer({"a": [("AH",)], "b": [("B", "IY")]})
    with pytest.raises(DataError, match="no pronunciation for '4TH': expected letters"):
        toy("4TH")
    lexicon = make_lexicon(["A", "ÉTÉ", "A", "B"], toy)
    assert lexicon.entries == [("A", ("AH",)), ("B", ("B", "IY"))]
    assert lexicon.failed == ["ÉTÉ"]


def _likelihood(letters, phones, table, num_phones):
    """(sum over all alignments, expected counts of each (letter, unit)) by enumeration, float64."""
    total, counts = 0.0, np.zeros_like(table)
    for steps in itertools.product((0, 1, 2), repeat=len(letters)):
        if sum(steps) != len(phones):
            continue
        at, units = 0, []
        for step in steps:
            q = phones[at : at + step]
            units.append([0, 1 + q[0] if step else 0, 1 + num_phones + q[0] * num_phones + q[-1] if step else 0][step])
            at += step
        p = np.prod([table[letter, unit] for letter, unit in zip(letters, units)])
        total += p
        for letter, unit in zip(letters, units):
            counts[letter, unit] += p
    return total, counts / total


def test_expectation_equals_the_enumeration_of_alignments():
    from ngsgd.lang.letters import _expectation, _groups

    rng = np.random.default_rng([7, 1])
    table = rng.uniform(0.1, 1.0, (4, 1 + 3 + 9))
    for size, length in [(1, 1), (1, 2), (3, 2), (4, 5), (5, 10), (4, 1)]:
        letters, phones = rng.integers(0, 4, size), rng.integers(0, 3, length)
        (group,) = _groups([(letters, phones)], 3)
        where, amounts = _expectation(group, table)
        found = np.bincount(where, amounts, minlength=table.size).reshape(table.shape)
        np.testing.assert_allclose(found, _likelihood(letters, phones, table, 3)[1], rtol=1e-12, atol=1e-15)


def test_alignment_finds_silent_letters_and_pairs():
    """Letters k n o x as 0-3, phones N OW K S as 0-3; more words than one alignment can explain by chance."""
    words = {"kno": "N OW", "no": "N OW", "on": "OW N", "knox": "N OW K S", "ox": "OW K S", "oko": "OW K OW"}
    phones = ["N", "OW", "K", "S"]
    data = [
        (np.array(["knox".index(c) for c in w]), np.array([phones.index(q) for q in p.split()]))
        for w, p in words.items()
    ]
    aligned = align(data, 4, 4, iterations=20, rare=0.01)
    pair_k_s = 1 + 4 + 2 * 4 + 3
    assert aligned[3].tolist() == [0, 1, 2, pair_k_s]
    assert aligned[0].tolist() == [0, 1, 2]
    assert align([(np.array([0]), np.array([0, 1, 2]))], 4, 4) == [None]  # three phones for one letter


def test_ngram_probabilities_sum_to_one_and_follow_the_counts():
    rng = np.random.default_rng([3, 4])
    sequences = [rng.integers(FIRST, 7, rng.integers(1, 6)) for _ in range(200)]
    model = NgramModel(sequences, num_units=8, order=3)
    histories = [(BEGIN, BEGIN), (BEGIN, 4), (3, 5), (7, 7), (6, BEGIN)]
    for h in histories:
        history = np.full(8, (h[0] << 8) | h[1], np.uint64)
        p = np.exp(model.log_prob(history, np.arange(8, dtype=np.uint64)))
        assert p.sum() == pytest.approx(1.0, abs=1e-12)
    # Maximum-likelihood order: what follows a frequent history most often is the most likely.
    text = [(BEGIN, BEGIN, *s, END) for s in sequences]
    after = [t[i + 2] for t in text for i in range(len(t) - 2) if t[i : i + 2] == (BEGIN, BEGIN)]
    frequent = max(set(after), key=after.count)
    p = model.log_prob(np.zeros(8, np.uint64), np.arange(8, dtype=np.uint64))
    assert int(np.argmax(p)) == frequent


TOY = {
    "cat": "K AE T",
    "hat": "HH AE T",
    "chat": "CH AE T",
    "that": "DH AE T",
    "mat": "M AE T",
    "math": "M AE TH",
    "ham": "HH AE M",
    "cam": "K AE M",
    "much": "M AH CH",
    "cut": "K AH T",
    "hut": "HH AH T",
    "thus": "DH AH S",
}


def test_model_speaks_new_words_and_is_deterministic():
    entries = [(w, tuple(p.split())) for w, p in TOY.items()]
    first, second = G2P.train(entries), G2P.train(entries)
    assert first.pronounce("hatch") == second.pronounce("hatch")
    assert first.pronounce("mut") == ("M", "AH", "T")
    assert first.pronounce("tham") == ("DH", "AE", "M")
    assert first.pronounce("zzz") is None  # a letter never seen
    assert first.pronounce("über") is None


def test_training_on_nothing_says_what_was_expected():
    with pytest.raises(DataError, match="no word to learn pronunciation from"):
        G2P.train([("123", ("W", "AH", "N"))])


def test_spelling_knows_letters_and_apostrophes_only():
    assert spelling("A'z").tolist() == [1, 0, 26]
    assert spelling("naïve") is None
    assert spelling("") is None


def test_program_writes_lexicon_and_sources(run, tmp_path):
    (tmp_path / "words").write_text("<eps> 0\nZERO 1\nSLOTHS 2\nZERO 3\n")
    result = run("make-lexicon", "--sources=sources", "words", "lexicon")
    assert (tmp_path / "lexicon").read_text() == "SLOTHS S L OW TH S\nZERO Z IH R OW\nZERO Z IY R OW\n"
    assert (tmp_path / "sources").read_text() == "SLOTHS ending\nZERO dictionary\n"
    assert "WARNING (make-lexicon) no pronunciation for '<eps>'" in result.stderr
    run("make-lexicon", "--variants=1", "words", "one")
    assert (tmp_path / "one").read_text() == "SLOTHS S L OW TH S\nZERO Z IH R OW\n"


def _distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


@pytest.mark.slow
def test_phone_error_on_held_out_words():
    """Of every 20 words one is held out; the whole table, rules included. Measured: 6.3 % of phones, 26 % of words."""
    entries = {w: v for w, v in cmudict_entries().items() if w.replace("'", "").replace("-", "").isalpha()}
    held_out = [w for w in entries if zlib.crc32(w.encode()) % 20 == 0]
    pronouncer = Pronouncer({w: v for w, v in entries.items() if zlib.crc32(w.encode()) % 20})
    errors = phones = wrong = 0
    sample = held_out[::4]
    for word in sample:
        said = pronouncer(word)[0][0]
        error, length = min((_distance(said, truth), len(truth)) for truth in entries[word])
        errors, phones, wrong = errors + error, phones + length, wrong + (error > 0)
    assert errors / phones < 0.075
    assert wrong / len(sample) < 0.30
