"""What a person looks at: frames, plots, the report."""
