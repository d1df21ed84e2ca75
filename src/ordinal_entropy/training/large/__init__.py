"""One large network on images, trained through Lightning."""

from ordinal_entropy.environment import import_torchvision

import_torchvision()  # which Lightning and torchmetrics would import
