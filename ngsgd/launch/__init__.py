"""Launchers: run a command, or an array of them, here or on a cluster."""
