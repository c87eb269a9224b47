"""What a person looks at: frames, pages, notebooks, comparisons, exports."""
