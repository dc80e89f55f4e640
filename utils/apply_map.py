#!/usr/bin/env python3
"""Replace the fields of a text by what a map has behind them, perhaps several words or none.

Usage: apply_map.py [options] MAP [IN [OUT]]
e.g.: apply_map.py -f 2 old_spk_to_new data/train/utt2spk utt2spk
      apply_map.py -f 2- --permissive spellings.txt data/train/text text

A field that is not in the map is an error, unless --permissive. Without names, from standard input to standard output.
"""

from ngsgd import cli
from ngsgd.data.filter import MapOptions, map_file


@cli.program(__doc__)
@cli.options_from(MapOptions)
@cli.argument("mapping")
@cli.argument("source", default="-")
@cli.argument("target", default="-")
def main(map, mapping, source, target):
    cli.finish(map_file(mapping, source, target, map), what="lines")


if __name__ == "__main__":
    main()
