"""Log mel filterbank energies, as Kaldi's compute-fbank-feats makes them."""

from dataclasses import dataclass
from typing import Any

from ngsgd.features.frames import FeatureType, WindowOptions, feature_types, set_windows
from ngsgd.options import opt


@dataclass
class FbankOptions(WindowOptions):
    """Options of filterbank features."""

    use_energy: bool = opt(False, "add the log energy of the window as one more dimension")
    energy_floor: float = opt(0.0, "floor of the energy, absolute; 0: none")
    raw_energy: bool = opt(True, "the energy before pre-emphasis and windowing")
    use_log_fbank: bool = opt(True, "the logarithm of the energies")
    use_power: bool = opt(True, "the power spectrum; false: the magnitude")
    htk_compat: bool = opt(False, "put the energy last, as HTK does")


@feature_types.register("fbank")
class Fbank(FeatureType):
    """(T, num_mel_bins), with the energy one more."""

    Options = FbankOptions

    @classmethod
    def examples(cls) -> list[FbankOptions]:
        return [FbankOptions(), FbankOptions(dither=0, use_energy=True, num_mel_bins=40, snip_edges=False)]

    def _extractor(self) -> Any:
        import kaldi_native_fbank as native

        options = native.FbankOptions()
        set_windows(options, self.options)
        for name in ("use_energy", "energy_floor", "raw_energy", "use_log_fbank", "use_power", "htk_compat"):
            setattr(options, name, getattr(self.options, name))
        return native.OnlineFbank(options)
