"""Acoustic features and the transforms on them."""
