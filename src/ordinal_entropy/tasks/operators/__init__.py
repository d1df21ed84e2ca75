"""Operator learning: a function, given at sensors, and a place, to the value of another function there."""
