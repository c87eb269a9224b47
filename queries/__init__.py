"""The SQL standard library and the loader that registers it in DuckDB."""
