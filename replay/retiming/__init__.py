"""From a policy to the tasks it changes: which collectives, on which GPUs, by what ratio."""
