"""Copies of a data directory that sound otherwise: at other speeds, or louder and softer.

A recording at speed s is the recording taken as of rate s·r, brought back to rate r: 1/s as long, every frequency s
times as high (Ko et al. 2015, "Audio augmentation"). That shifts formants as another vocal tract would, so each copy of
a speaker counts as one of its own. Volumes are one random factor an utterance, which stays the same utterance.
"""

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ngsgd.data.corpus import data_directory, write_prepared
from ngsgd.data.datadir import DataDir
from ngsgd.data.recordings import Load, utterances
from ngsgd.data.resample import resample
from ngsgd.data.wave import to_int16
from ngsgd.errors import DataError
from ngsgd.kaldi_io.files import open_bytes_writer
from ngsgd.options import opt

log = logging.getLogger(__name__)

INT16_LARGEST = 32767


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


@dataclass
class PerturbVolumeOptions:
    """Options of `perturb_volume.py`."""

    scale_low: float = opt(0.125, "smallest factor")
    scale_high: float = opt(2.0, "largest factor; what exceeds 16 bits is clipped")
    seed: int = opt(0, "seed of the factors, together with the utterance's id")

    def factor(self, utterance: str) -> float:
        """That of an utterance, uniform between the bounds, to four digits. DataError for bounds that are none."""
        if not 0 < self.scale_low <= self.scale_high:
            raise DataError(f"expected 0 < --scale-low <= --scale-high, got {self.scale_low} and {self.scale_high}")
        generator = np.random.default_rng([self.seed, *utterance.encode()])
        return float(f"{generator.uniform(self.scale_low, self.scale_high):.4g}")


@dataclass(frozen=True)
class _Copy:
    """What is made of an utterance: prefix of its ids, prefix of the file name, and the change of its sound."""

    prefix: str
    file_prefix: str
    change: Callable[[np.ndarray, int], np.ndarray]
    """(samples, rate) -> samples"""


def perturb_speed(source: str, target: str, options: PerturbSpeedOptions) -> tuple[int, int]:
    """Make data directory `target` of copies of `source`, their recordings as FLAC in target/audio.

    Its utt2uniq says of what original each is a copy. Recordings made earlier are kept. Returns the numbers of
    utterances made and failed (named and left out).
    """
    copies = [
        _Copy(prefix(s), prefix(s), lambda x, r, s=s: x if s == 1 else resample(x, round(r * s), r))
        for s in options.values()
    ]
    return _write_copies(source, target, lambda _: copies)


def perturb_volume(source: str, target: str, options: PerturbVolumeOptions) -> tuple[int, int]:
    """As `perturb_speed`, with each utterance once, under its own id, at another volume."""
    clipped = 0

    def scaled(factor: float, samples: np.ndarray) -> np.ndarray:
        nonlocal clipped
        louder = np.float32(factor) * samples
        clipped += bool(np.abs(louder).max() > INT16_LARGEST)
        return louder

    def copies(utterance: str) -> list[_Copy]:
        factor = options.factor(utterance)
        return [_Copy("", f"vol{factor:g}-", lambda samples, _: scaled(factor, samples))]

    counts = _write_copies(source, target, copies)
    if clipped:
        log.warning("%d utterances exceed 16 bits at their new volume and are clipped", clipped)
    return counts


def _write_copies(source: str, target: str, copies_of: Callable[[str], list[_Copy]]) -> tuple[int, int]:
    data = DataDir.load(source)
    if data.wav is None or data.text is None or data.utt2spk is None:
        raise DataError(f"{source}: expected wav.scp, text and utt2spk")
    audio = Path(target) / "audio"
    wav: dict[str, str] = {}
    text: dict[str, str] = {}
    utt2spk: dict[str, str] = {}
    utt2uniq: dict[str, str] = {}
    originals = data.files.get("utt2uniq", {})
    failed = 0
    for utterance, load in _utterances(data):
        if utterance not in data.text or utterance not in data.utt2spk:
            continue
        copies = copies_of(utterance)
        audio.mkdir(parents=True, exist_ok=True)
        try:
            made = {c.prefix + utterance: _made(audio / f"{c.file_prefix}{utterance}.flac", c, load) for c in copies}
        except DataError as error:
            log.warning("%s is left out: %s", utterance, error)
            failed += 1
            continue
        wav |= made
        text |= dict.fromkeys(made, data.text[utterance])
        utt2spk |= {c.prefix + utterance: c.prefix + data.utt2spk[utterance] for c in copies}
        utt2uniq |= dict.fromkeys(made, originals.get(utterance, utterance))
    if wav:
        versions = any(u != original for u, original in utt2uniq.items())
        write_prepared(data_directory(wav, text, utt2spk, utt2uniq if versions else None), target)
    return len(wav), failed


def _utterances(data: DataDir) -> Iterator[tuple[str, Load]]:
    segments = data.path / "segments"
    return utterances(str(data.path / "wav.scp"), str(segments) if segments.is_file() else "")


def _made(file: Path, copy: _Copy, load: Load) -> str:
    """The path of the recording, made unless it is there."""
    path = os.path.abspath(file)
    if not os.path.isfile(path):
        import soundfile

        samples, rate = load()
        with open_bytes_writer(path) as out:
            soundfile.write(out, to_int16(copy.change(samples, rate)), rate, format="FLAC", subtype="PCM_16")
    return path
