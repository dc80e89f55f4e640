#!/usr/bin/env python3
"""Take over a corpus's own data directory (wav.scp, text, utt2spk), paths in wav.scp made absolute.

The paths in wav.scp are relative to the folder that the directory is in. What is already so is left alone.

Usage: adopt_data_dir.py <corpus-data-dir> <data-dir>
e.g.: adopt_data_dir.py corpus/train data/train
"""

from ngsgd import cli


@cli.program(__doc__)
@cli.argument("corpus_data_dir")
@cli.argument("data_dir")
def main(corpus_data_dir, data_dir):
    import os

    from ngsgd.data.corpus import adopt, write_prepared

    data = adopt(corpus_data_dir, os.path.dirname(os.path.abspath(corpus_data_dir)))
    write_prepared(data, data_dir)
    cli.finish(len(data.utterances))


if __name__ == "__main__":
    main()
