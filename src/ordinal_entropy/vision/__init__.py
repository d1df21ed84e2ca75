"""What the tasks on images share; needs the [train] extra."""
