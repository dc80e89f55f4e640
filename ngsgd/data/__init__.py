"""The data directory: loading, validating, splitting; reading audio."""
