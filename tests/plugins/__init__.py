"""Plugins of pytest for these tests."""
