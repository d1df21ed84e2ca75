"""Methods from outside: one file each, found by their entry points."""
