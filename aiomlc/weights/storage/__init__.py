"""The storage of matrices in a model directory: their tensors and number formats."""
