"""How the matrices of a model directory are stored: in which tensors, and as which numbers."""
