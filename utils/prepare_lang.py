#!/usr/bin/env python3
"""Make a lang directory (phones.txt, words.txt, topo, phones/*, L.fst, L_disambig.fst) from a dictionary directory.

Usage: prepare_lang.py [options] <dict-dir> <oov-word> <tmp-dir> <lang-dir>
e.g.: prepare_lang.py --sil-prob=0.5 data/local/dict '<UNK>' data/local/lang data/lang

<dict-dir> holds lexicon.txt or lexiconp.txt, silence_phones.txt, nonsilence_phones.txt, optional_silence.txt and
perhaps extra_questions.txt; <oov-word> is the lexicon's word that stands for unknown ones in training.
"""

from ngsgd import cli
from ngsgd.lang import lang_dir as lang


@cli.program(__doc__)
@cli.options_from(lang.PrepareLangOptions)
@cli.argument("dict_dir")
@cli.argument("oov_word")
@cli.argument("tmp_dir")
@cli.argument("lang_dir")
def main(prepare_lang, dict_dir, oov_word, tmp_dir, lang_dir):
    lang.prepare_lang(dict_dir, oov_word, tmp_dir, lang_dir, prepare_lang)


if __name__ == "__main__":
    main()
