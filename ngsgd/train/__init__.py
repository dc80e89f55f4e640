"""The training schedule and the driver that walks it."""
