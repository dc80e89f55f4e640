"""ngsgd: natural-gradient SGD with parameter averaging for hybrid DNN-HMM acoustic models."""

__version__ = "0.1.0"
