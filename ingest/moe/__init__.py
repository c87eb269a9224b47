"""MoE routing logs of training and serving frameworks, and a plain form of our own."""
