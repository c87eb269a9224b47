"""NCCL and RCCL: debug logs, Inspector, profiler plugin, topology files, nccl-tests."""
