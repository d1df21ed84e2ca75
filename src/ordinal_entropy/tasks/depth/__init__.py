"""Depth from single images: NYU-Depth-v2, and a generated set in its layout."""
