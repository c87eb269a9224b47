"""Nsight Systems: exports of a report (SQLite, Parquet, Arrow, JSON lines) and recipe tables."""
