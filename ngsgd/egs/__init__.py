"""Training examples (egs): frames in context with their labels."""
