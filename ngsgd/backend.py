"""Where arrays live: numpy or cupy, from one source. The only module that names cupy.

Everything else uses array methods and operators, and asks `module_of(x)` for the module only to create arrays.
"""

import importlib.util
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
