"""Everything is in setup.cfg; this only names every program in bin/ as a script to install."""

from pathlib import Path

from setuptools import setup

setup(scripts=sorted(str(p) for p in Path("bin").iterdir() if p.is_file()))
