"""Decoding graphs, decoding and scoring."""
