"""New labels for old examples, after the training data were aligned anew.

The key of an example, UTTERANCE-T, says which frames are its labelled ones: T, T + 1, ... of the utterance's. Agrees
with Kaldi's nnet-relabel-egs; the input stays byte for byte as it was.
"""

import logging

import ngsgd.egs.example  # noqa: F401  registers the table kind "nnet_example"
from ngsgd.errors import DataError
from ngsgd.kaldi_io.tables import SequentialReader, Writer

log = logging.getLogger(__name__)


def relabel_egs(pdfs_rspecifier: str, egs_rspecifier: str, egs_wspecifier: str) -> tuple[int, int]:
    """Give the examples the pdfs of the alignments, with weight 1; returns how many got new ones and how many did not.

    An example whose utterance has no alignment, or too short a one, keeps its labels, and is counted; the utterances
    are named. DataError when a key is not UTTERANCE-T, and when there is no alignment for any example.
    """
    pdfs = dict(SequentialReader(pdfs_rspecifier, "int32_vector"))
    done, kept, missing = 0, 0, set()
    with Writer(egs_wspecifier, "nnet_example") as out:
        for key, example in SequentialReader(egs_rspecifier, "nnet_example"):
            utterance, dash, first = key.rpartition("-")
            if not dash or not first.isdecimal():
                raise DataError(f"{egs_rspecifier}: the key '{key}' of an example, expected UTTERANCE-FRAME")
            labels = pdfs[utterance][int(first) : int(first) + example.num_frames] if utterance in pdfs else ()
            if len(labels) == example.num_frames:
                example.labels = [[(int(pdf), 1.0)] for pdf in labels]
                done += 1
            else:
                kept += 1
                if utterance not in missing:
                    log.warning("%s keeps its old labels: no alignment up to frame %d", utterance, int(first))
                missing.add(utterance)
            out.write(key, example)
        if not done:
            raise DataError(f"{pdfs_rspecifier} has no alignment for any of the {kept} examples of {egs_rspecifier}")
    log.info("relabelled %d examples; %d, of %d utterances, keep their labels", done, kept, len(missing))
    return done, kept
