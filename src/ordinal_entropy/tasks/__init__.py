"""The tasks of the paper, each with its data, models, metrics and recipe; needs the [train] extra."""
