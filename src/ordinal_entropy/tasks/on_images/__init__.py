"""Tasks on images: what they have in common, made of what each says of its own."""

from ordinal_entropy.tasks.on_images.training import task

__all__ = ["task"]
