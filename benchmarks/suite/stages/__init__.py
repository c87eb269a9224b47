"""Which ways are compared on which input, and what is asked of them: a module a stage."""
