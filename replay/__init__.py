"""Task graphs, cost models, the engine and the policies."""
