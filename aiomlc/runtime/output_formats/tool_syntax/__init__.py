"""What models write for a call of a tool: one file for each way to write it."""
