"""What the small recipes prepare (egs/tiny, an4, fsdd), and the tools under them."""

import filecmp
import math
from pathlib import Path

import pytest

from ngsgd.data.corpus import adopt, data_directory, write_prepared
from ngsgd.data.datadir import DataDir
from ngsgd.errors import DataError
from ngsgd.lang.dict_writer import DictOptions, prepare_dictionary
from ngsgd.lang.word_loop import WordLoopOptions, arpa_unigrams, word_loop

EGS = Path(__file__).parents[1] / "egs"


def prepare(run, recipe, *corpus):
    for what in ("data", "dict", "lm"):
        run(EGS / recipe / "local" / f"prepare_{what}.sh", *corpus)


def test_tiny_is_complete_from_the_checkout_alone(run, tmp_path):
    prepare(run, "tiny", EGS / "tiny/corpus")
    train, test = DataDir.load(tmp_path / "data/train"), DataDir.load(tmp_path / "data/test")
    assert (len(train.utterances), len(train.spk2utt)) == (144, 6)
    assert (len(test.utterances), len(test.spk2utt)) == (48, 2)
    assert sum(len(t.split()) for t in test.text.values()) == 145
    assert all(Path(p).is_absolute() and Path(p).is_file() for p in train.wav.values())
    run("validate_dict_dir.py", "data/local/dict")


def test_tiny_has_the_dictionary_and_grammar_that_kaldi_had(run, tmp_path, golden):
    prepare(run, "tiny", EGS / "tiny/corpus")
    names = ["lexicon.txt", "silence_phones.txt", "nonsilence_phones.txt", "optional_silence.txt"]
    names += ["extra_questions.txt"]
    assert filecmp.cmpfiles(golden / "dict", tmp_path / "data/local/dict", names, shallow=False)[0] == names
    assert (tmp_path / "data/local/lm/G.txt").read_text() == (golden / "lang_test/G.txt").read_text()
    for name in ("train", "test"):
        assert (tmp_path / "data" / name / "text").read_text() == (golden / "corpus" / name / "text").read_text()


@pytest.mark.parametrize(
    ("recipe", "utterances", "speakers", "words", "grammar"),
    [("an4", (948, 130), (74, 10), 773, 99), ("fsdd", (549, 282), (4, 2), 1000, 10)],
)
def test_corpora_given_by_their_folder(run, tmp_path, shared, recipe, utterances, speakers, words, grammar):
    prepare(run, recipe, shared / recipe)
    sets = [DataDir.load(tmp_path / "data" / name) for name in ("train", "test")]
    assert tuple(len(s.utterances) for s in sets) == utterances
    assert tuple(len(s.spk2utt) for s in sets) == speakers
    assert sum(len(t.split()) for t in sets[1].text.values()) == words
    assert len((tmp_path / "data/local/lm/G.txt").read_text().splitlines()) == grammar + 1
    run("validate_dict_dir.py", "data/local/dict")


@pytest.mark.parametrize("recipe", ["an4", "fsdd"])
def test_the_folder_must_be_given(run, recipe):
    for what in ("data", "dict", "lm"):
        result = run(EGS / recipe / f"local/prepare_{what}.sh", status=2)
        assert "Usage: prepare_" in result.stderr


@pytest.fixture
def corpus(tmp_path):
    """A corpus of two utterances."""
    folder = tmp_path / "corpus/train"
    folder.mkdir(parents=True)
    (tmp_path / "corpus/a.wav").write_bytes(b"RIFF")
    (folder / "wav.scp").write_text("s1-1 a.wav\ns1-2 cat a.wav |\n")
    (folder / "text").write_text("s1-1 ONE\ns1-2 TWO\n")
    (folder / "utt2spk").write_text("s1-1 s1\ns1-2 s1\n")
    return folder


def test_adopted_paths_are_absolute_and_commands_stay(corpus):
    data = adopt(corpus, corpus.parent)
    assert data.wav == {"s1-1": str(corpus.parent / "a.wav"), "s1-2": "cat a.wav |"}
    assert data.spk2utt == {"s1": ["s1-1", "s1-2"]}


def test_missing_recordings_are_counted_and_nothing_is_written(corpus, run, tmp_path):
    (corpus.parent / "a.wav").unlink()
    result = run("adopt_data_dir.py", "corpus/train", "data/train", status=1)
    assert "1 of 2 recordings are missing, first" in result.stderr
    assert not (tmp_path / "data").exists()


def test_a_directory_that_says_the_same_keeps_its_features(corpus, tmp_path):
    data = adopt(corpus, corpus.parent)
    assert write_prepared(data, tmp_path / "data")
    (tmp_path / "data/feats.scp").write_text("s1-1 x.ark:3\ns1-2 x.ark:9\n")
    assert not write_prepared(data, tmp_path / "data")
    assert (tmp_path / "data/feats.scp").is_file()
    assert write_prepared(data.select(["s1-1"]), tmp_path / "data")
    assert not (tmp_path / "data/feats.scp").exists()


def test_utterances_must_have_all_three():
    with pytest.raises(DataError, match="utterance b and 0 more lack a recording, words or a speaker"):
        data_directory({"a": "x", "b": "y"}, {"a": "ONE"}, {"a": "s", "b": "s"})


def test_uniform_loop_skips_what_is_no_word_and_sums_to_one():
    lines = word_loop(["<UNK>", "!SIL", "A", "B", "A", "#0"], WordLoopOptions(end_prob=0.5))
    assert [line.split()[2] for line in lines[:-1]] == ["A", "B"]
    assert sum(math.exp(-float(line.split()[-1])) for line in lines) == pytest.approx(1.0, abs=1e-5)


ARPA = r"""
\1-grams:
prose before the data, as some files have
\data\
ngram 1=4
\1-grams:
-1.0 <s> 0.0
-0.5 </s>
-0.30103 A -0.1
-2 C
\2-grams:
"""


def test_unigram_loop_keeps_the_model_s_numbers_and_names_what_it_lacks(tmp_path, caplog):
    (tmp_path / "lm").write_text(ARPA)
    lines = word_loop(["A", "B"], WordLoopOptions(arpa=str(tmp_path / "lm")))
    assert lines == ["0 0 A A 0.693147", "0 1.15129"]
    assert "1 of 2 words are not in the language model: B" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "found no line"),
        ("\\data\\\n\\2-grams:\n", "no .1-grams: after"),
        ("\\data\\\n\\1-grams:\n-1 A\nB\n\\end\\\n", "lm:4: expected 'log10-probability word"),
        ("\\data\\\n\\1-grams:\n-1 A\n", "ends within"),
    ],
)
def test_malformed_arpa_is_an_error_with_its_line(tmp_path, text, message):
    (tmp_path / "lm").write_text(text)
    with pytest.raises(DataError, match=message):
        arpa_unigrams(str(tmp_path / "lm"))


@pytest.mark.parametrize("end_prob", [0.0, 1.0])
def test_end_probability_is_between_0_and_1(end_prob):
    with pytest.raises(DataError, match="--end-prob"):
        word_loop(["A"], WordLoopOptions(end_prob=end_prob))


def test_dictionary_from_a_lexicon(tmp_path, run):
    (tmp_path / "lex").write_text("B B IY\nA AH\nB B IY\n")
    options = DictOptions(silence_phones="SIL SPN", extra_words="!SIL=SIL <UNK>=SPN")
    assert prepare_dictionary(str(tmp_path / "lex"), str(tmp_path / "dict"), options) == 4
    read = {p.name: p.read_text() for p in (tmp_path / "dict").iterdir()}
    assert read == {
        "lexicon.txt": "!SIL SIL\n<UNK> SPN\nB B IY\nA AH\n",
        "silence_phones.txt": "SIL\nSPN\n",
        "nonsilence_phones.txt": "AH\nB\nIY\n",
        "optional_silence.txt": "SIL\n",
        "extra_questions.txt": "SIL SPN\n",
    }
    run("validate_dict_dir.py", "dict")


@pytest.mark.parametrize(
    ("lexicon", "options", "message"),
    [
        ("A\n", {}, "lex:1: expected a word and its phones, got 'A'"),
        ("", {}, "the lexicon is empty"),
        ("A SIL\n", {}, "no phone in the lexicon besides silence"),
        ("A AH\n", {"optional_silence": "SP"}, "optional silence SP is not among"),
        ("A AH\n", {"extra_words": "<UNK>"}, "expected WORD=PHONE, got '<UNK>'"),
    ],
)
def test_faulty_dictionaries_are_not_made(tmp_path, lexicon, options, message):
    (tmp_path / "lex").write_text(lexicon)
    with pytest.raises(DataError, match=message):
        prepare_dictionary(str(tmp_path / "lex"), str(tmp_path / "dict"), DictOptions(**options))
    assert not (tmp_path / "dict").exists()
