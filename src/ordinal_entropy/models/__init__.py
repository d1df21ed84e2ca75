"""Networks: backbones of timm, dense models on their maps, and the last layer of all of them."""
