#!/usr/bin/env python3
"""Check a dictionary directory: every fault is printed with file and line number.

Usage: validate_dict_dir.py <dict-dir>
e.g.: validate_dict_dir.py data/local/dict
"""

from ngsgd import cli


@cli.program(__doc__)
@cli.argument("dict_dir")
def main(dict_dir):
    from ngsgd.lang.dict_dir import load_dictionary

    cli.finish(len(load_dictionary(dict_dir).lexicon), what="pronunciations")


if __name__ == "__main__":
    main()
