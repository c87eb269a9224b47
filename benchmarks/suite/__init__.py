"""The suite: retime, its peers and the machine's limits in one run, as ratios, with goals."""
