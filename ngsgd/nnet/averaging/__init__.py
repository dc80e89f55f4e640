"""Ways to make the next model of those of an iteration's jobs; the contract stands in rule.py."""
