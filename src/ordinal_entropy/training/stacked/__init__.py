"""Many small networks trained as one stack: one step, one loop, whatever the rows are."""
