"""Backbones of some thousand parameters, under names of timm's: runs are short, checkpoints small."""

import sys
from types import ModuleType

from goldens import adapter

NAME, SMALLER = "golden_resnet", "golden_resnet_smaller"
CHANNELS = {NAME: (4, 4, 8, 8), SMALLER: (2, 2, 2, 2)}


def register():
    """Makes the names known to timm."""
    timm = adapter.import_timm()
    if NAME in timm.list_models():
        return
    from timm.models.resnet import BasicBlock, ResNet

    settings = {"input_size": (3, 64, 64), "num_classes": 1000, "first_conv": "conv1", "classifier": "fc"}
    sys.modules[__name__ + "_of_timm"] = module = ModuleType("resnets of the goldens")
    module.default_cfgs = timm.models.generate_default_cfgs(dict.fromkeys(CHANNELS, settings))
    for name, channels in CHANNELS.items():

        def create(pretrained=False, *, name=name, channels=channels, **options):
            shape = {"block": BasicBlock, "layers": (1, 1, 1, 1), "channels": channels, "stem_width": channels[0]}
            return timm.models.build_model_with_cfg(ResNet, name, pretrained, **{**shape, **options})

        create.__name__, create.__module__ = name, __name__ + "_of_timm"
        timm.models.register_model(create)
