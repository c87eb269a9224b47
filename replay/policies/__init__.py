"""The policy catalogue: one file a policy."""
