"""From a lexicon to the transducers L and L_disambig that map phones to words.

L has three states that matter: the start, a loop state that every word leaves and enters, and a state before optional
silence. Every word ends either in the loop state, at -log(1 - sil_prob), or before silence, at -log(sil_prob).
L_disambig adds symbols #1, #2, ... that make it determinizable: after a pronunciation that is shared by words or begins
another, and after optional silence; and loops of #0 that let the back-off arcs of G pass.
(Mohri, Pereira, Riley 2002, section 3; state numbers and arc order as Kaldi's utils/lang/make_lexicon_fst.py.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ngsgd.lang.dict_dir import Pronunciation
from ngsgd.lang.symbols import SymbolTable


def position_dependent(lexicon: Sequence[Pronunciation]) -> list[Pronunciation]:
    """The lexicon with phones marked by their place in the word: _B begin, _I internal, _E end, _S single."""
    result = []
    for entry in lexicon:
        phones = entry.phones
        if len(phones) == 1:
            marked = (phones[0] + "_S",)
        else:
            marked = (phones[0] + "_B", *(p + "_I" for p in phones[1:-1]), phones[-1] + "_E")
        result.append(replace(entry, phones=marked))
    return result


def add_disambiguation(lexicon: Sequence[Pronunciation]) -> tuple[list[Pronunciation], int]:
    """Append #1, #2, ... to pronunciations that are not unique or that begin another one.

    Returns:
        (the lexicon so extended, number of symbols used). The n-th entry of the same phones gets #n.
    """
    count = Counter(entry.phones for entry in lexicon)
    prefixes = {entry.phones[:n] for entry in lexicon for n in range(len(entry.phones))}
    used: Counter[tuple[str, ...]] = Counter()
    result = []
    for entry in lexicon:
        phones = entry.phones
        if count[phones] > 1 or phones in prefixes:
            used[phones] += 1
            phones = (*phones, f"#{used[phones]}")
        result.append(replace(entry, phones=phones))
    return result, max(used.values(), default=0)


def lexicon_fst_text(
    lexicon: Sequence[Pronunciation],
    phones: SymbolTable,
    words: SymbolTable,
    sil_prob: float,
    sil_phone: str,
    sil_disambig: str = "",
) -> str:
    """The lexicon transducer as integer-labelled OpenFst text: "src dst phone word cost" a line.

    Args:
        lexicon: pronunciations, disambiguation symbols included.
        sil_prob: probability of silence after a word and at the start, 0 <= sil_prob < 1.
        sil_phone: the optional silence phone.
        sil_disambig: disambiguation symbol after optional silence, "" for none.
    """
    lines: list[str] = []

    def arc(source: int, target: int, phone: int, word: int, cost: float) -> None:
        lines.append(f"{source}\t{target}\t{phone}\t{word}\t{cost}\n")

    if sil_prob == 0.0:
        loop, next_state = 0, 1
        ends = [(loop, 0.0)]
    else:
        start, loop, silence, next_state = 0, 1, 2, 3
        without, with_silence = -math.log(1.0 - sil_prob), -math.log(sil_prob)
        ends = [(loop, without), (silence, with_silence)]
        for target, cost in ends:
            arc(start, target, 0, 0, cost)
        if sil_disambig:
            arc(silence, next_state, phones[sil_phone], 0, 0.0)
            arc(next_state, loop, phones[sil_disambig], 0, 0.0)
            next_state += 1
        else:
            arc(silence, loop, phones[sil_phone], 0, 0.0)
    for entry in lexicon:
        word, cost = words[entry.word], -math.log(entry.probability)
        state = loop
        for phone in entry.phones[:-1]:
            arc(state, next_state, phones[phone], word, cost)
            state, next_state = next_state, next_state + 1
            word, cost = 0, 0.0
        for target, end_cost in ends:
            arc(state, target, phones[entry.phones[-1]], word, end_cost + cost)
    lines.append(f"{loop}\t0.0\n")
    return "".join(lines)


def compile_lexicon(text: str, loops: Sequence[tuple[int, int]] = ()):
    """The transducer of `lexicon_fst_text` sorted by word, with `loops` of (phone, word) that pass through it.

    Returns:
        kaldifst.StdVectorFst
    """
    import kaldifst

    fst = kaldifst.compile(text)
    if loops:
        kaldifst.add_self_loops(fst, [phone for phone, _ in loops], [word for _, word in loops])
    kaldifst.arcsort(fst, "olabel")
    return fst
