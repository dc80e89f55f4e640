"""Speed perturbation: copies of a data directory spoken faster or slower (Ko et al. 2015, "Audio augmentation").

A recording at speed s is the recording taken as of rate s·r, brought back to rate r: 1/s as long, every frequency s
times as high. That shifts formants as another vocal tract would, so each copy of a speaker counts as one of its own.
"""

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ngsgd.data.corpus import data_directory, write_prepared
from ngsgd.data.datadir import DataDir
from ngsgd.data.recordings import utterances
from ngsgd.data.resample import resample
from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_bytes_writer
from ngsgd.options import opt

log = logging.getLogger(__name__)


@dataclass
class PerturbSpeedOptions:
    """Options of `perturb_speed.py`."""

    speeds: str = opt("0.9,1.0,1.1", "speeds of the copies, 1.0 is the original")

    def values(self) -> list[float]:
        """The speeds. DataError unless they are different numbers between 0.5 and 2."""
        try:
            speeds = [float(s) for s in self.speeds.split(",")]
        except ValueError:
            raise DataError(f"--speeds: expected numbers and commas, got '{self.speeds}'") from None
        if len(set(speeds)) != len(speeds) or not all(0.5 <= s <= 2 for s in speeds):
            raise DataError(f"--speeds: expected different numbers between 0.5 and 2, got '{self.speeds}'")
        return speeds


def prefix(speed: float) -> str:
    """What Kaldi puts before utterance and speaker ids: `sp0.9-`; nothing for the original."""
    return "" if speed == 1 else f"sp{speed:g}-"


def perturb_speed(source: str, target: str, options: PerturbSpeedOptions) -> tuple[int, int]:
    """Make data directory `target` of copies of `source`, their recordings as FLAC in target/audio.

    Recordings made earlier are kept. Returns the numbers of utterances made and failed (named and left out).
    """
    data = DataDir.load(source)
    if data.wav is None or data.text is None or data.utt2spk is None:
        raise DataError(f"{source}: expected wav.scp, text and utt2spk")
    audio = Path(target) / "audio"
    audio.mkdir(parents=True, exist_ok=True)
    wav: dict[str, str] = {}
    text: dict[str, str] = {}
    utt2spk: dict[str, str] = {}
    failed = 0
    speeds = options.values()
    for utterance, load in _utterances(data):
        if utterance not in data.text or utterance not in data.utt2spk:
            continue
        try:
            made = {prefix(s) + utterance: _copy(audio, utterance, s, load) for s in speeds}
        except DataError as error:
            log.warning("%s is left out: %s", utterance, error)
            failed += 1
            continue
        wav |= made
        text |= dict.fromkeys(made, data.text[utterance])
        utt2spk |= {prefix(s) + utterance: prefix(s) + data.utt2spk[utterance] for s in speeds}
    if wav:
        write_prepared(data_directory(wav, text, utt2spk), target)
    return len(wav), failed


def _utterances(data: DataDir) -> Iterator[tuple[str, Callable]]:
    segments = data.path / "segments"
    return utterances(str(data.path / "wav.scp"), str(segments) if segments.is_file() else "")


def _copy(audio: Path, utterance: str, speed: float, load: Callable) -> str:
    """The path of the recording at this speed, made unless it is there."""
    path = os.path.abspath(audio / f"{prefix(speed)}{utterance}.flac")
    if not os.path.isfile(path):
        import soundfile

        samples, rate = load()
        if speed != 1:
            samples = resample(samples, round(rate * speed), rate)
        clipped = np.clip(np.rint(samples), -32768, 32767).astype(np.int16)
        with open_bytes_writer(path) as out:
            soundfile.write(out, clipped, rate, format="FLAC", subtype="PCM_16")
    return path
