"""The task graph of a traced job: streams, host threads, collectives across ranks."""
