"""What MFCC and filterbank features share: windows, mel bands, sampling rates, dither.

The maths is kaldi-native-fbank's, equal to Kaldi's to 1e-5. One thing differs from Kaldi on purpose: dither is
Gaussian noise added to the recording, seeded by the utterance's id, instead of noise from one global generator added to
each window; so an utterance has the same features whatever else is computed before it.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ngsgd.data.resample import Resampler
from ngsgd.errors import DataError
from ngsgd.options import opt
from ngsgd.registry import Registry

feature_types = Registry("feature type")
"""name -> a subclass of `FeatureType`"""

PIECE = 1 << 13  # samples given to the extractor at once


@dataclass
class WindowOptions:
    """Windows and mel bands, under the names of Kaldi's configuration files."""

    sample_frequency: float = opt(16000.0, "sampling rate that recordings must have, Hz")
    frame_length: float = opt(25.0, "length of a window, ms")
    frame_shift: float = opt(10.0, "distance of windows, ms")
    dither: float = opt(1.0, "standard deviation of the noise added, in int16 steps; 0: none")
    dither_seed: int = opt(0, "seed of the noise, together with the utterance's id")
    preemphasis_coefficient: float = opt(0.97, "coefficient of the pre-emphasis")
    remove_dc_offset: bool = opt(True, "subtract the mean of each window")
    window_type: str = opt(
        "povey", "shape of the window", choices=("povey", "hamming", "hanning", "rectangular", "blackman", "sine")
    )
    blackman_coeff: float = opt(0.42, "coefficient of the blackman window")
    round_to_power_of_two: bool = opt(True, "pad windows with zeros to a power of two before the FFT")
    snip_edges: bool = opt(True, "only windows that lie within the recording; false: one for each shift, mirrored ends")
    allow_downsample: bool = opt(False, "resample recordings of a higher rate instead of refusing them")
    allow_upsample: bool = opt(False, "resample recordings of a lower rate instead of refusing them")
    num_mel_bins: int = opt(23, "number of mel bands")
    low_freq: float = opt(20.0, "lower edge of the lowest band, Hz")
    high_freq: float = opt(0.0, "upper edge of the highest band, Hz; 0 or less: below half the sampling rate")


class FeatureType:
    """A way to make features of a recording; subclasses say `_extractor`, and register in `feature_types`.

    Raises DataError for options that make no sense together.
    """

    Options: ClassVar[type]

    def __init__(self, options: Any):
        self.options = options
        for name in ("sample_frequency", "frame_length", "frame_shift"):
            if getattr(options, name) <= 0:
                raise DataError(f"--{name.replace('_', '-')}: expected a positive number, got {getattr(options, name)}")
        nyquist = options.sample_frequency / 2
        high = options.high_freq if options.high_freq > 0 else nyquist + options.high_freq
        if not 0 <= options.low_freq < high <= nyquist:
            raise DataError(
                f"--low-freq={options.low_freq:g} and --high-freq={options.high_freq:g}: expected 0 <= low < high <= "
                f"{nyquist:g}, half of --sample-frequency"
            )
        if options.num_mel_bins < 3:
            raise DataError(f"--num-mel-bins={options.num_mel_bins}: expected at least 3 mel bins")
        if getattr(options, "num_ceps", 1) not in range(1, options.num_mel_bins + 1):
            raise DataError(f"--num-ceps={options.num_ceps}: expected 1 to --num-mel-bins={options.num_mel_bins}")
        try:
            self.dim: int = self._extractor().dim
        except ValueError as error:
            raise DataError(f"feature options: {error}") from None

    @classmethod
    def examples(cls) -> list[Any]:
        """Options to test the feature type with."""
        raise NotImplementedError

    def _extractor(self) -> Any:
        """A fresh kaldi-native-fbank object."""
        raise NotImplementedError

    def compute(self, samples: np.ndarray, rate: float, key: str) -> np.ndarray:
        """(T, dim) float32 features of (N,) samples on the int16 scale; `key` seeds the dither.

        Raises DataError for another sampling rate than configured, and for a recording shorter than one window.
        """
        stream = self.stream(rate, key)
        pieces = [stream.accept(samples[at : at + PIECE]) for at in range(0, len(samples), PIECE)]
        return np.concatenate([*pieces, stream.finish()])

    def stream(self, rate: float, key: str) -> "FeatureStream":
        """For a recording of `rate` Hz that comes in chunks: the features that `compute` makes of it, bit for bit.

        Raises DataError for another sampling rate than configured.
        """
        wanted = self.options.sample_frequency
        if rate != wanted:
            option = "downsample" if rate > wanted else "upsample"
            if not getattr(self.options, f"allow_{option}"):
                raise DataError(
                    f"the recording is sampled at {rate:g} Hz, the configuration wants {wanted:g} Hz; "
                    f"give --sample-frequency={rate:g} or --allow-{option}"
                )
        return FeatureStream(self, rate, key)


class FeatureStream:
    """Features of one recording, whose samples come in chunks: `accept` each, then `finish`.

    Frames are given as soon as their window is there; all together they are those of `FeatureType.compute`, the same
    bits whatever the chunks, with dither and resampling too. What has been given is forgotten: the memory is bounded.
    """

    def __init__(self, kind: FeatureType, rate: float, key: str):
        options = kind.options
        self._dim = kind.dim
        self._window_ms = options.frame_length
        self._rate = options.sample_frequency
        self._resampler = Resampler(int(rate), int(self._rate)) if rate != self._rate else None
        self._dither = np.float32(options.dither)
        self._noise = np.random.default_rng([options.dither_seed, *key.encode()])
        self._extractor = kind._extractor()
        self._received = self._given = 0  # samples at the features' rate; frames

    def accept(self, samples: np.ndarray) -> np.ndarray:
        """(n, dim) float32: the frames that the next (N,) samples on the int16 scale complete; perhaps none."""
        samples = np.asarray(samples, np.float32)
        self._take(self._resampler.accept(samples) if self._resampler else samples)
        return self._new_frames()

    def finish(self) -> np.ndarray:
        """(n, dim) float32: the last frames. Raises DataError when the whole recording was shorter than one window."""
        if self._resampler:
            self._take(self._resampler.finish())
        self._extractor.input_finished()
        frames = self._new_frames()
        if self._given == 0:
            length = 1000 * self._received / self._rate
            raise DataError(f"{length:.1f} ms are too short for a window of {self._window_ms:g} ms")
        return frames

    def _take(self, samples: np.ndarray) -> None:
        if not len(samples):
            return
        self._received += len(samples)
        if self._dither:
            samples = samples + self._dither * self._noise.standard_normal(len(samples), dtype=np.float32)
        self._extractor.accept_waveform(self._rate, samples.tolist())  # twice as fast as from an array

    def _new_frames(self) -> np.ndarray:
        ready = self._extractor.num_frames_ready
        features = np.empty((ready - self._given, self._dim), np.float32)
        for row, t in enumerate(range(self._given, ready)):
            features[row] = self._extractor.get_frame(t)
        self._extractor.pop(len(features))
        self._given = ready
        return features


def set_windows(native: Any, options: WindowOptions) -> None:
    """Copy `options` into the options object of kaldi-native-fbank."""
    frame, mel = native.frame_opts, native.mel_opts
    frame.samp_freq = options.sample_frequency
    frame.frame_length_ms = options.frame_length
    frame.frame_shift_ms = options.frame_shift
    frame.dither = 0.0  # ours is added before
    frame.preemph_coeff = options.preemphasis_coefficient
    frame.remove_dc_offset = options.remove_dc_offset
    frame.window_type = options.window_type
    frame.blackman_coeff = options.blackman_coeff
    frame.round_to_power_of_two = options.round_to_power_of_two
    frame.snip_edges = options.snip_edges
    mel.num_bins = options.num_mel_bins
    mel.low_freq = options.low_freq
    mel.high_freq = options.high_freq
