"""A made-up job of any number of ranks with known truth, and what ingesting and asking it costs."""
