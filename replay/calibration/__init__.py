"""What links and devices do: fitted from the job, from benchmarks, or by name."""
