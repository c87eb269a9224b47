"""retime: where the step time went, who made everybody wait, and what it would have cost."""

__version__ = "0.1.0"
