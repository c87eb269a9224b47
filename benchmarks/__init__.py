"""The performance suite: one command each, peers and limits in the same run, ratios printed."""
