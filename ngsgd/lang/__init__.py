"""Lexicons and language models."""
