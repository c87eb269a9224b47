"""Execution traces: PyTorch ET, Chakra and PARAM."""
