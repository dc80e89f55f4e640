"""Where arrays live: numpy or cupy, from one source. The only module that names cupy.

Everything else uses array methods and operators, and asks `module_of(x)` for the module only to create arrays.
"""

import importlib
import importlib.util
from types import ModuleType
from typing import Any

import numpy as np

from ngsgd.errors import DataError


def module_of(x: Any) -> Any:
    """The array module (numpy or cupy) that `x` belongs to."""
    if isinstance(x, np.ndarray):
        return np
    import cupy

    return cupy


def on_gpu(x: Any) -> bool:
    """Whether `x` is a cupy array."""
    return not isinstance(x, np.ndarray)


def gpu_missing() -> str:
    """Why there is no GPU to use, or the empty string when there is one."""
    if importlib.util.find_spec("cupy") is None:
        return "cupy is not installed (pip install 'ngsgd[gpu]')"
    import cupy

    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CUDA: {error}"
    return "" if count else "no CUDA device"


def gpu_names() -> list[str]:
    """Name, memory and CUDA version of each GPU; only where `gpu_missing` says nothing."""
    import cupy

    version = cupy.cuda.runtime.runtimeGetVersion()
    named = []
    for number in range(cupy.cuda.runtime.getDeviceCount()):
        properties = cupy.cuda.runtime.getDeviceProperties(number)
        memory = properties["totalGlobalMem"] / (1 << 30)
        named.append(f"{properties['name'].decode()}, {memory:.0f} GiB, CUDA {version // 1000}.{version % 1000 // 10}")
    return named


def array_module(device: str) -> Any:
    """numpy for "cpu", cupy for "gpu". DataError when a GPU was asked for and there is none: never a silent CPU run."""
    if device == "cpu":
        return np
    if device != "gpu":
        raise DataError(f"device: expected cpu or gpu, got '{device}'")
    reason = gpu_missing()
    if reason:
        raise DataError(f"a GPU was asked for, but {reason}; use --device=cpu")
    import cupy

    return cupy


def to_module(x: Any, xp: Any) -> Any:
    """`x` as an array of module `xp` (itself when it already is one)."""
    return xp.asarray(x) if xp is not np else to_cpu(x)


def to_cpu(x: Any) -> np.ndarray:
    """`x` as a numpy array (itself when it already is one)."""
    return x if isinstance(x, np.ndarray) else x.get()


FUSED_SIZE = 1 << 14  # numbers in the first array from which a fused kernel is worth importing numba for


def fused_kernels(*arrays: Any) -> ModuleType | None:
    """`ngsgd.nnet.kernels` where it can compute with these arrays and it pays: float32 rows on the CPU, not too few."""
    if arrays[0].size < FUSED_SIZE or any(
        not isinstance(a, np.ndarray) or a.dtype != np.float32 or a.strides[-1] != 4 for a in arrays
    ):
        return None
    return importlib.import_module("ngsgd.nnet.kernels")


def flat_rows(x: np.ndarray) -> tuple[np.ndarray, int]:
    """The memory of a matrix (N, D) with contiguous rows as one vector, and the distance between its rows."""
    if x.flags.c_contiguous:
        return x.reshape(-1), x.shape[1]
    ld = x.strides[0] // x.itemsize
    size = (len(x) - 1) * ld + x.shape[1]
    return np.lib.stride_tricks.as_strided(x, (size,), (x.itemsize,)), ld
