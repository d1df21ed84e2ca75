"""Crowd counting: ShanghaiTech A and B, density maps of their points, and a generated set in their layout."""
