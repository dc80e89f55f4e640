"""Kaldi's files: token streams, matrices, tables."""
