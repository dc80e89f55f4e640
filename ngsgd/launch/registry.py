"""The launchers by name: a launcher is a module of this folder that registers one function.

A launcher is a function `launch(request: Request) -> int`: it runs every job of the request, leaves one log a job with
the header and footer of `logfile.py`, says on stderr what failed, and returns the exit status (0 done, 1 some failed,
130 interrupted with every job gone). `utils/run.py` and its like are fronts of `ngsgd.launch.front.main(name)`.
"""

import importlib

from ngsgd.registry import Registry

launchers = Registry("launcher")


def get_launcher(name: str):
    """The launch function of `ngsgd/launch/NAME.py`. Raises DataError when the module registers no launcher."""
    importlib.import_module(f"ngsgd.launch.{name}")
    return launchers[name]
