"""Models in several processes."""
