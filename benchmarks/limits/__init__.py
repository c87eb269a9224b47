"""What the machine allows: reading, inflating and parsing files, moving memory, counting."""
