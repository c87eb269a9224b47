"""What a replay tells of a job itself: critical path, slack, stragglers, scores."""
