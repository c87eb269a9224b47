"""How a transformer may be split over GPUs, and what each way takes: memory, bytes, time."""
