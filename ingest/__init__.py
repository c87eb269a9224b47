"""Traces to tables: parsers, clocks, matching and the warehouse."""
