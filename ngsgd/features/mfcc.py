"""Mel-frequency cepstral coefficients, as Kaldi's compute-mfcc-feats makes them."""

from dataclasses import dataclass
from typing import Any

from ngsgd.features.frames import FeatureType, WindowOptions, feature_types, set_windows
from ngsgd.options import opt


@dataclass
class MfccOptions(WindowOptions):
    """Options of MFCC features."""

    num_ceps: int = opt(13, "number of cepstra, with C0")
    use_energy: bool = opt(True, "the log energy of the window in place of C0")
    energy_floor: float = opt(0.0, "floor of the energy, absolute; 0: none")
    raw_energy: bool = opt(True, "the energy before pre-emphasis and windowing")
    cepstral_lifter: float = opt(22.0, "scale of the liftering; 0: none")
    htk_compat: bool = opt(False, "put the energy or C0 last, as HTK does")


@feature_types.register("mfcc")
class Mfcc(FeatureType):
    """(T, num_ceps)."""

    Options = MfccOptions

    @classmethod
    def examples(cls) -> list[MfccOptions]:
        return [MfccOptions(), MfccOptions(dither=0, use_energy=False, num_mel_bins=40, num_ceps=40, high_freq=-400)]

    def _extractor(self) -> Any:
        import kaldi_native_fbank as native

        options = native.MfccOptions()
        set_windows(options, self.options)
        for name in ("num_ceps", "use_energy", "energy_floor", "raw_energy", "cepstral_lifter", "htk_compat"):
            setattr(options, name, getattr(self.options, name))
        return native.OnlineMfcc(options)
