"""`utt2num_frames` of a data directory."""

from dataclasses import dataclass
from pathlib import Path

from ngsgd.data.datadir import DataDir
from ngsgd.data.durations import write_utt2dur
from ngsgd.errors import DataError
from ngsgd.features.stream import shapes
from ngsgd.kaldi_io.each import for_each, require_most
from ngsgd.kaldi_io.lists import read_map, write_map
from ngsgd.options import opt


@dataclass
class NumFramesOptions:
    """Windows of features that are not there yet."""

    frame_shift: float = opt(0.01, "distance of windows, s; for directories without features")
    frame_length: float = opt(0.025, "length of a window, s; for directories without features")

    def frames(self, seconds: float) -> int:
        """Windows that lie within an utterance. Raises DataError when there is none."""
        count = int((seconds - self.frame_length + self.frame_shift) / self.frame_shift + 1e-6)
        if count < 1:
            raise DataError(f"{seconds:g} s are too short for a window of {self.frame_length:g} s")
        return count


def write_utt2num_frames(path: str | Path, options: NumFramesOptions) -> tuple[int, int]:
    """Write utt2num_frames of data directory `path`; returns (done, failed), the failed ones named and left out.

    From the headers of feats.scp; without one from utt2dur, which is made if missing. Raises DataError as
    `require_most`.
    """
    path = Path(path)
    data = DataDir.load(path)
    frames: dict[str, str] = {}
    if "feats.scp" in data.files:
        frames = {key: str(rows) for key, (rows, _) in shapes(f"scp:{path}/feats.scp")}
        done, failed = len(frames), 0
    else:
        if "utt2dur" not in data.files:
            write_utt2dur(path)
        durations = read_map(str(path / "utt2dur"))

        def count(utterance: str, seconds: str) -> None:
            try:
                frames[utterance] = str(options.frames(float(seconds)))
            except ValueError:
                raise DataError(f"{path}/utt2dur: expected seconds, found '{seconds}'") from None

        done, failed = for_each(((key, lambda s=s: s) for key, s in durations.items()), count)
    require_most(done, failed, str(path))
    write_map(str(path / "utt2num_frames"), frames)
    return done, failed
