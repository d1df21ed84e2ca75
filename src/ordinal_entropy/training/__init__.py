"""How runs are carried out, whatever the task: planned, trained, resumed, side by side; their scores gathered."""
