"""Example programs; each runs unchanged with the bundled model."""
