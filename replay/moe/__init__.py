"""All-to-all exchanges of mixture-of-experts layers: who sends how much where, over which ports."""
