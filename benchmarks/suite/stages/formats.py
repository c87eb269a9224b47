"""Other formats."""
