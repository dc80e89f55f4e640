"""From a dictionary directory to a lang directory: symbol tables, phone lists, topology, L.fst, L_disambig.fst.

The files and their content are those of Kaldi's utils/prepare_lang.sh (wsj/s5), byte for byte where the options agree.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass

from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_bytes_writer
from ngsgd.kaldi_io.fst import write_fst
from ngsgd.lang.dict_dir import Dictionary, Pronunciation, load_dictionary
from ngsgd.lang.lexicon import add_disambiguation, compile_lexicon, lexicon_fst_text, position_dependent
from ngsgd.lang.symbols import EPSILON, SymbolTable
from ngsgd.options import opt

log = logging.getLogger(__name__)

_POSITIONS = {"_B": "begin", "_E": "end", "_I": "internal", "_S": "singleton"}


@dataclass
class PrepareLangOptions:
    """How the lang directory is made."""

    position_dependent_phones: bool = opt(True, "mark phones by their place in the word: _B _E _I _S")
    sil_prob: float = opt(0.5, "probability of silence between words, 0 <= sil-prob < 1; 0 for none")
    num_sil_states: int = opt(5, "HMM states of silence phones")
    num_nonsil_states: int = opt(3, "HMM states of the other phones")
    share_silence_phones: bool = opt(False, "all silence phones share their pdfs")


def topology_text(
    num_nonsil_states: int, num_sil_states: int, nonsilence: Sequence[int], silence: Sequence[int]
) -> str:
    """The topo file: left-to-right phones, and silence with its middle states fully connected.

    Silence of n states: state 0 goes to 0..n-2, states 1..n-2 to 1..n-1, each with probability 1/(n-1); the last loops.
    """
    lines = ["<Topology>"]

    def state(number: int, targets: dict[int, float]) -> None:
        arcs = " ".join(f"<Transition> {target} {prob:.15g}" for target, prob in targets.items())
        lines.append(f"<State> {number} <PdfClass> {number} {arcs} </State>")

    def entry(phones: Sequence[int], states: list[dict[int, float]]) -> None:
        lines.extend(["<TopologyEntry>", "<ForPhones>", " ".join(map(str, phones)), "</ForPhones>"])
        for number, targets in enumerate(states):
            state(number, targets)
        lines.extend([f"<State> {len(states)} </State>", "</TopologyEntry>"])

    entry(nonsilence, [{i: 0.75, i + 1: 0.25} for i in range(num_nonsil_states)])
    n = num_sil_states
    uniform = 1.0 / (n - 1) if n > 1 else 0.0
    middle = [dict.fromkeys(range(1, n), uniform) for _ in range(1, n - 1)]
    first = [dict.fromkeys(range(n - 1), uniform)] if n > 1 else []
    entry(silence, [*first, *middle, {n - 1: 0.75, n: 0.25}])
    lines.append("</Topology>")
    return "\n".join(lines) + "\n"


class _Writer:
    """Writes the text files of a lang directory, each whole or absent, with integer and colon-separated versions."""

    def __init__(self, path: str):
        self.path = path

    def text(self, name: str, text: str) -> None:
        os.makedirs(os.path.dirname(f"{self.path}/{name}"), exist_ok=True)
        with open_bytes_writer(f"{self.path}/{name}") as out:
            out.write(text.encode())

    def rows(self, name: str, rows: Sequence[Sequence[str]], tables: Sequence[SymbolTable | None]) -> None:
        """NAME.txt and NAME.int; `tables[i]` maps column i (the last one all that follow), None leaves it as it is."""
        self.text(f"{name}.txt", "".join(" ".join(row) + "\n" for row in rows))
        columns = [
            [t if t is None else t.ids for t in tables[: len(row)]]
            + [None if tables[-1] is None else tables[-1].ids] * (len(row) - len(tables))
            for row in rows
        ]
        mapped = [
            [f if t is None else str(t[f]) for f, t in zip(row, column, strict=True)]
            for row, column in zip(rows, columns, strict=True)
        ]
        self.text(f"{name}.int", "".join(" ".join(row) + "\n" for row in mapped))

    def symbols(self, name: str, symbols: Sequence[str], table: SymbolTable) -> None:
        """NAME.txt, NAME.int and NAME.csl."""
        self.rows(name, [[s] for s in symbols], [table])
        self.text(f"{name}.csl", ":".join(str(table[s]) for s in symbols) + "\n")

    def fst(self, name: str, fst) -> None:
        write_fst(f"{self.path}/{name}", fst)


class _Expansion:
    """The versions of each phone that stand in lists: itself, and where positions are marked PHONE_B, _E, _I, _S."""

    def __init__(self, dictionary: Dictionary, marked: bool):
        silence = {p for line in dictionary.silence for p in line}
        self.suffixes = None
        if marked:
            self.suffixes = {p: ["", *_POSITIONS] if p in silence else list(_POSITIONS) for p in dictionary.phones}

    def line(self, phones: Sequence[str]) -> list[str]:
        if self.suffixes is None:
            return list(phones)
        return [p + suffix for p in phones for suffix in self.suffixes[p]]

    def flat(self, lines: Sequence[Sequence[str]]) -> list[str]:
        return [p for line in lines for p in self.line(line)]


def _word_table(lexicon: Sequence[Pronunciation]) -> SymbolTable:
    words = sorted({entry.word for entry in lexicon}, key=lambda w: w.encode())
    return SymbolTable.numbered([*words, "#0", "<s>", "</s>"], "words.txt")


def _check(options: PrepareLangOptions, dictionary: Dictionary, oov: str, path: str) -> None:
    if not 0.0 <= options.sil_prob < 1.0:
        raise DataError(f"--sil-prob={options.sil_prob}: expected 0 <= sil-prob < 1")
    if options.num_sil_states < 1 or options.num_nonsil_states < 1:
        raise DataError("a phone needs at least one HMM state")
    if all(entry.word != oov for entry in dictionary.lexicon):
        raise DataError(
            f"the word '{oov}' that stands for unknown words is not in the lexicon of {path}; add a line "
            "for it, with a silence or spoken-noise phone"
        )


def _extra_questions(dictionary: Dictionary, expansion: _Expansion) -> str:
    """The dictionary's questions expanded, then one a word position for real phones and for silence."""
    lines = [" ".join(expansion.line(question)) + "\n" for question in dictionary.extra_questions]
    if expansion.suffixes is not None:
        for group, suffixes in ((dictionary.nonsilence, list(_POSITIONS)), (dictionary.silence, ["", *_POSITIONS])):
            phones = [p for line in group for p in line]
            lines += ["".join(p + suffix + " " for p in phones) + "\n" for suffix in suffixes]
    return "".join(lines)


def prepare_lang(dict_dir: str, oov: str, tmp_dir: str, lang_dir: str, options: PrepareLangOptions) -> None:
    """Make the lang directory; `oov` is the lexicon's word for unknown ones. DataError with what is wrong."""
    dictionary = load_dictionary(dict_dir)
    _check(options, dictionary, oov, dict_dir)
    marked = options.position_dependent_phones
    expansion = _Expansion(dictionary, marked)
    lexicon = position_dependent(dictionary.lexicon) if marked else dictionary.lexicon
    lexicon_disambig, num_disambig = add_disambiguation(lexicon)
    num_disambig += 1  # one more, for optional silence
    silence, nonsilence = expansion.flat(dictionary.silence), expansion.flat(dictionary.nonsilence)
    disambig = [f"#{n}" for n in range(num_disambig + 1)]
    phones = SymbolTable.numbered([*silence, *nonsilence, *disambig], "phones.txt")
    words = _word_table(lexicon)

    os.makedirs(tmp_dir, exist_ok=True)
    _write_working_lexicons(_Writer(tmp_dir), lexicon, lexicon_disambig, num_disambig)
    out = _Writer(lang_dir)
    out.text("phones.txt", phones.text())
    out.text("words.txt", words.text())
    out.text("oov.txt", f"{oov}\n")
    out.text("oov.int", f"{words[oov]}\n")
    for name, members in (
        ("silence", silence),
        ("nonsilence", nonsilence),
        ("context_indep", silence),
        ("optional_silence", [dictionary.optional_silence]),
        ("disambig", disambig),
    ):
        out.symbols(f"phones/{name}", members, phones)
    _write_sets(out, dictionary, expansion, options.share_silence_phones, phones)
    out.text("phones/wdisambig.txt", "#0\n")
    out.text("phones/wdisambig_phones.int", f"{phones['#0']}\n")
    out.text("phones/wdisambig_words.int", f"{words['#0']}\n")
    if marked:
        kinds = [[p, _POSITIONS.get(p[-2:], "nonword")] for p in [*silence, *nonsilence]]
        out.rows("phones/word_boundary", kinds, [phones, None])
    align = {(e.word, e.word, *e.phones) for e in lexicon} | {(EPSILON, EPSILON, dictionary.optional_silence)}
    out.rows("phones/align_lexicon", sorted(align, key=lambda row: " ".join(row).encode()), [words, words, phones])
    nonsil, sil = [phones[p] for p in nonsilence], [phones[p] for p in silence]
    out.text("topo", topology_text(options.num_nonsil_states, options.num_sil_states, nonsil, sil))

    silence_phone = dictionary.optional_silence
    text = lexicon_fst_text(lexicon, phones, words, options.sil_prob, silence_phone)
    out.fst("L.fst", compile_lexicon(text))
    text = lexicon_fst_text(lexicon_disambig, phones, words, options.sil_prob, silence_phone, f"#{num_disambig}")
    out.fst("L_disambig.fst", compile_lexicon(text, [(phones["#0"], words["#0"])]))
    log.info(
        "%s: %d words, %d pronunciations, %d phones, %d disambiguation symbols",
        lang_dir,
        len(words) - 4,
        len(lexicon),
        len(silence) + len(nonsilence),
        len(disambig),
    )


def _write_sets(
    out: _Writer, dictionary: Dictionary, expansion: _Expansion, share_silence: bool, phones: SymbolTable
) -> None:
    """sets, roots (which phones share a tree root, and whether it may be split), extra_questions."""
    silence_lines = [[p for line in dictionary.silence for p in line]] if share_silence else dictionary.silence
    sets = [expansion.line(line) for line in [*silence_lines, *dictionary.nonsilence]]
    out.rows("phones/sets", sets, [phones])
    roots = [["shared", "split", *phone_set] for phone_set in sets]
    if share_silence:
        roots[0][:2] = ["not-shared", "not-split"]
    out.rows("phones/roots", roots, [None, None, phones])
    questions = _extra_questions(dictionary, expansion)
    out.text("phones/extra_questions.txt", questions)
    mapped = [" ".join(str(phones[p]) for p in line.split()) + "\n" for line in questions.splitlines()]
    out.text("phones/extra_questions.int", "".join(mapped))


def _write_working_lexicons(
    out: _Writer, lexicon: Sequence[Pronunciation], disambiguated: Sequence[Pronunciation], num_disambig: int
) -> None:
    """The lexicon as it went into L and L_disambig, for people to look at."""
    for name, entries in (("lexiconp.txt", lexicon), ("lexiconp_disambig.txt", disambiguated)):
        out.text(name, "".join(f"{e.word}\t{e.probability}\t{' '.join(e.phones)}\n" for e in entries))
    out.text("lex_ndisambig", f"{num_disambig}\n")
