#!/usr/bin/env python3
"""Make a dictionary directory (lexicon.txt, silence_phones.txt, ...) from a lexicon.

Usage: prepare_dict.py [options] <lexicon> <dict-dir>
e.g.: prepare_dict.py --silence-phones="SIL SPN" --extra-words="<UNK>=SPN" lexicon.txt data/local/dict
"""

from ngsgd import cli
from ngsgd.lang.dict_writer import DictOptions


@cli.program(__doc__)
@cli.options_from(DictOptions)
@cli.argument("lexicon")
@cli.argument("dict_dir")
def main(dict, lexicon, dict_dir):
    from ngsgd.lang.dict_writer import prepare_dictionary

    cli.finish(prepare_dictionary(lexicon, dict_dir, dict), what="pronunciations")


if __name__ == "__main__":
    main()
