#!/usr/bin/env python3
"""Make data directories, vocabulary and training text of Flight of the Amazon Queen.

Usage: prepare_data.py [options] <queen.1c> <conf-dir> <data-dir>
e.g.: prepare_data.py corpus/queen.1c conf data

Makes <data-dir>/train, test (seen speakers, unseen sentences) and test_unseen (unseen speakers too); the recordings as
FLAC in local/audio; local/lm/train.txt, a training sentence a line, and local/lm/vocabulary.txt, all words of training
and tests. The lists of recordings are train.ids, test.ids and unseen.ids of <conf-dir>. With --quick only the
recordings to train on get fewer; vocabulary and text are those of the whole list.
"""

from queen_corpus import QueenOptions

from ngsgd import cli


@cli.program(__doc__)
@cli.options_from(QueenOptions)
@cli.argument("container")
@cli.argument("conf_dir")
@cli.argument("data_dir")
def main(queen, container, conf_dir, data_dir):
    from queen_prepare import prepare

    cli.finish(prepare(container, conf_dir, data_dir, queen))


if __name__ == "__main__":
    main()
