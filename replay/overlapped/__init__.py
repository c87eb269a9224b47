"""Communication under computation: buckets, tiles, fused kernels, and the tasks they change."""
