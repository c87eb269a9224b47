"""What runs beside slows down: collectives that share links, kernels that share SMs."""
