"""Mechanisms of attention compared: what they forecast, what they cost, what they explain."""
