"""Lang directories: symbol tables, faults of dictionaries, lexicon transducers, agreement with Kaldi."""

import filecmp
from pathlib import Path

import pytest

from ngsgd.errors import DataError
from ngsgd.kaldi_io.fst import read_fst
from ngsgd.lang.dict_dir import Pronunciation, examine, load_dictionary
from ngsgd.lang.lang_dir import PrepareLangOptions, prepare_lang, topology_text
from ngsgd.lang.lexicon import add_disambiguation, compile_lexicon, lexicon_fst_text, position_dependent
from ngsgd.lang.symbols import FieldRange, SymbolsToIntegers, SymbolTable

GOOD = {
    "silence_phones.txt": "SIL\nSPN\n",
    "nonsilence_phones.txt": "A\nB\n",
    "optional_silence.txt": "SIL\n",
    "extra_questions.txt": "",
    "lexicon.txt": "<UNK> SPN\nab A B\naba A B A\na A\nah A\n",
}


def dictionary(path: Path, **changes: str | bytes) -> Path:
    path.mkdir()
    for name, content in {**GOOD, **{k.replace("__", "."): v for k, v in changes.items()}}.items():
        (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_same_files_as_kaldi(golden, run, tmp_path):
    run("prepare_lang.py", golden / "dict", "<SIL>", tmp_path / "tmp", tmp_path / "lang")
    expected = sorted(p.relative_to(golden / "lang") for p in (golden / "lang").rglob("*") if p.is_file())
    found = sorted(p.relative_to(tmp_path / "lang") for p in (tmp_path / "lang").rglob("*") if p.is_file())
    assert found == expected and len(expected) > 30
    different = [f for f in expected if not filecmp.cmp(golden / "lang" / f, tmp_path / "lang" / f, shallow=False)]
    assert different == []


def test_position_independent_phones_and_state_numbers(tmp_path):
    options = PrepareLangOptions(position_dependent_phones=False, num_sil_states=3, num_nonsil_states=1, sil_prob=0.2)
    prepare_lang(str(dictionary(tmp_path / "dict")), "<UNK>", str(tmp_path / "tmp"), str(tmp_path / "lang"), options)
    assert (tmp_path / "lang/phones.txt").read_text() == "<eps> 0\nSIL 1\nSPN 2\nA 3\nB 4\n#0 5\n#1 6\n#2 7\n#3 8\n"
    assert not (tmp_path / "lang/phones/word_boundary.txt").exists()
    topo = (tmp_path / "lang/topo").read_text()
    one_state = "<State> 0 <PdfClass> 0 <Transition> 0 0.75 <Transition> 1 0.25 </State>"
    assert f"<ForPhones>\n3 4\n</ForPhones>\n{one_state}" in topo
    assert "<State> 1 <PdfClass> 1 <Transition> 1 0.5 <Transition> 2 0.5 </State>" in topo


def test_one_state_silence_is_left_to_right():
    assert (
        "<State> 0 <PdfClass> 0 <Transition> 0 0.75 <Transition> 1 0.25 </State>\n<State> 1 </State>"
        in topology_text(3, 1, [2], [1]).split("<ForPhones>")[2]
    )


def test_shared_silence_is_one_unsplit_root(tmp_path):
    options = PrepareLangOptions(share_silence_phones=True)
    prepare_lang(str(dictionary(tmp_path / "dict")), "<UNK>", str(tmp_path / "tmp"), str(tmp_path / "lang"), options)
    roots = (tmp_path / "lang/phones/roots.txt").read_text().splitlines()
    assert roots[0].startswith("not-shared not-split SIL SIL_B") and roots[0].endswith("SPN_S")
    assert roots[1] == "shared split A_B A_E A_I A_S"


@pytest.mark.parametrize(
    ("changes", "where", "what"),
    [
        ({"lexicon__txt": "<UNK> SPN\nab A C\n"}, "lexicon.txt:2", "phone C"),
        ({"lexicon__txt": "<UNK> SPN\nab A B\nab A B\n"}, "lexicon.txt:3", "repeats line 2"),
        ({"lexicon__txt": "<UNK> SPN\nab\n"}, "lexicon.txt:2", "empty pronunciation"),
        ({"lexicon__txt": "<UNK> SPN\n\nab A\n"}, "lexicon.txt:2", "empty line"),
        ({"lexicon__txt": "<UNK> SPN\n<s> A\n"}, "lexicon.txt:2", "reserved"),
        ({"lexicon__txt": "<UNK> SPN\r\nab A\n"}, "lexicon.txt:1", "U+000D"),
        ({"lexicon__txt": "<UNK> SPN\na\u00a0b A\n"}, "lexicon.txt:2", "U+00A0 (no-break space)"),
        ({"lexicon__txt": b"<UNK> SPN\na\xe9 A\n"}, "lexicon.txt:2", "0xe9"),
        ({"lexiconp__txt": "<UNK> 1.0 SPN\nab 1.5 A B\n"}, "lexiconp.txt:2", "(0, 1]"),
        (
            {"lexiconp__txt": "<UNK> 1.0 SPN\nab 0.5 A\nx 1 A\nah 1 A\na 1 A\n"},
            "lexiconp.txt:2",
            "where lexicon.txt has",
        ),
        ({"silence_phones__txt": "SIL SPN\nSIL\n"}, "silence_phones.txt:2", "phone SIL is already in"),
        ({"nonsilence_phones__txt": "A\nB\nSPN\n"}, "nonsilence_phones.txt:3", "already in silence_phones.txt line 2"),
        ({"nonsilence_phones__txt": "A\nB\nC_B\n"}, "nonsilence_phones.txt:3", "_B"),
        ({"nonsilence_phones__txt": "A\nB B1\n"}, "nonsilence_phones.txt:2", "tells them apart"),
        ({"optional_silence__txt": "A\n"}, "optional_silence.txt:1", "not in silence_phones.txt"),
        ({"optional_silence__txt": "SIL\nSPN\n"}, "optional_silence.txt:1", "exactly one"),
        ({"extra_questions__txt": "A Q\n"}, "extra_questions.txt:1", "phone Q"),
    ],
)
def test_faults_are_named_with_their_lines(changes, where, what, tmp_path):
    _, faults = examine(str(dictionary(tmp_path / "dict", **changes)))
    assert any(where in fault and what in fault for fault in faults), faults
    with pytest.raises(DataError, match="faults, the first"):
        load_dictionary(str(tmp_path / "dict"))


def test_good_dictionaries_have_no_faults(tmp_path):
    assert examine(str(dictionary(tmp_path / "dict")))[1] == []
    told_apart = {"nonsilence_phones__txt": "A\nB B1\n", "extra_questions__txt": "B A\nB1\n"}
    assert examine(str(dictionary(tmp_path / "dict2", **told_apart)))[1] == []


def test_programs_say_what_is_wrong(run, tmp_path):
    bad = dictionary(tmp_path / "dict", lexicon__txt="<UNK> SPN\nab A C\n")
    result = run("validate_dict_dir.py", bad, status=1)
    assert "lexicon.txt:2" in result.stderr and "Traceback" not in result.stderr
    good = dictionary(tmp_path / "good")
    result = run("prepare_lang.py", good, "<unk>", tmp_path / "tmp", tmp_path / "lang", status=1)
    assert "'<unk>'" in result.stderr.splitlines()[-1] and not (tmp_path / "lang").exists()


def test_disambiguation_symbols():
    words = {"see": "S IY", "sea": "S IY", "seat": "S IY T", "tea": "T IY", "teas": "T IY Z", "oh": "OW"}
    lexicon = [Pronunciation(w, 1.0, tuple(p.split())) for w, p in words.items()]
    entries, used = add_disambiguation(lexicon)
    assert [" ".join(e.phones) for e in entries] == ["S IY #1", "S IY #2", "S IY T", "T IY #1", "T IY Z", "OW"]
    assert used == 2


def test_word_positions():
    lexicon = [Pronunciation(p.lower(), 1.0, tuple(p)) for p in ("A", "AB", "ABAB")]
    assert [" ".join(e.phones) for e in position_dependent(lexicon)] == ["A_S", "A_B B_E", "A_B B_I A_I B_E"]


def paths(fst, state=None, longest=6):
    """All (input, output, cost) of a small FST up to a length."""
    import kaldifst

    state = fst.start if state is None else state
    if (final := fst.final(state).value) != float("inf"):
        yield (), (), final
    if longest:
        for arc in kaldifst.ArcIterator(fst, state):
            for inputs, outputs, cost in paths(fst, arc.nextstate, longest - 1):
                first_in, first_out = (tuple(x for x in (y,) if x) for y in (arc.ilabel, arc.olabel))
                yield first_in + inputs, first_out + outputs, arc.weight.value + cost


def test_lexicon_transducer_spells_words_with_optional_silence():
    import math

    phones, words = SymbolTable.numbered(["SIL", "A", "B"]), SymbolTable.numbered(["ab", "a"])
    lexicon = [Pronunciation("ab", 0.5, ("A", "B")), Pronunciation("a", 1.0, ("A",))]
    fst = compile_lexicon(lexicon_fst_text(lexicon, phones, words, 0.2, "SIL"))
    found = {(i, o): math.exp(-c) for i, o, c in paths(fst)}
    assert found[(2, 3), (1,)] == pytest.approx(0.8 * 0.5 * 0.8)
    assert found[(1, 2, 3), (1,)] == pytest.approx(0.2 * 0.5 * 0.8)
    assert found[(2, 1), (2,)] == pytest.approx(0.8 * 0.2)
    assert found[(2, 1, 2), (2, 2)] == pytest.approx(0.8 * 0.2 * 0.8)
    assert {o for i, o in found if i == (2, 3)} == {(1,)}
    without = compile_lexicon(lexicon_fst_text(lexicon, phones, words, 0.0, "SIL"))
    assert all(1 not in i for i, _, _ in paths(without))


def test_back_off_symbols_pass_through_the_lexicon(golden):
    lexicon = read_fst(str(golden / "lang/L_disambig.fst"))
    phones, words = (SymbolTable.read(str(golden / "lang" / f)) for f in ("phones.txt", "words.txt"))
    sequences = {(i, o) for i, o, _ in paths(lexicon, longest=2)}
    assert ((phones["#0"],), (words["#0"],)) in sequences


def test_symbol_tables_name_bad_lines(tmp_path):
    path = tmp_path / "words.txt"
    for text, message in [
        ("<eps> 0\na\n", ":2: expected"),
        ("<eps> 0\na 1\na 2\n", ":3: symbol a is given twice"),
        ("<eps> 0\na 1\nb 1\n", r":3: number 1 \(line 2\)"),
        ("", "empty"),
    ]:
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            SymbolTable.read(str(path))


def test_unknown_words_become_the_oov_word_and_are_counted(run, tmp_path):
    (tmp_path / "words.txt").write_text("<eps> 0\n<UNK> 1\nhello 2\n")
    (tmp_path / "text").write_text("u1 hello wörld wörld\nu2 foo\nu3\n")
    result = run("sym2int.py", "--map-oov=<UNK>", "--fields=2-", "words.txt", "text", "-")
    assert result.stdout == "u1 2 1 1\nu2 1\nu3\n"
    assert "3 tokens of 2 symbols" in result.stderr and "wörld (2), foo (1)" in result.stderr
    result = run("sym2int.py", "--fields=2-", "words.txt", "text", "out", status=1)
    assert "text:1" in result.stderr and "wörld" in result.stderr and not (tmp_path / "out").exists()
    assert run("int2sym.py", "--fields=2-", "words.txt", stdin="u1 2 1\n").stdout == "u1 hello <UNK>\n"


def test_field_ranges():
    fields = list("abcd")
    for text, expected in [("all", "ABCD"), ("2-", "aBCD"), ("2", "aBcd"), ("2-3", "aBCd"), ("5-", "abcd")]:
        assert "".join(FieldRange(text).map(fields, str.upper)) == expected
    with pytest.raises(DataError, match="field range"):
        FieldRange("0-2")


def test_oov_may_be_given_as_an_integer():
    table = SymbolTable({"<eps>": 0, "<UNK>": 3, "3": 7})
    assert SymbolsToIntegers(table, "3")("x") == 3
    with pytest.raises(DataError, match="4"):
        SymbolsToIntegers(table, "4")
