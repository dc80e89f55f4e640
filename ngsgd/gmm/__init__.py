"""Diagonal-covariance Gaussian mixture models and their training."""
