"""Frameworks that need older packages than the other tests; `make frameworks` runs them."""
