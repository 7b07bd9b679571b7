"""One module per question; each prints a table and JSON and asserts nothing."""
