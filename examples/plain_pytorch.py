"""Ordinal entropy in a plain training loop: two lines more than without it, no change to the model.

python examples/plain_pytorch.py
"""

import torch
from torch import nn
from torch.nn.functional import mse_loss

import ordinal_entropy as oe

torch.manual_seed(0)
x = torch.rand(256, 4)
y = (10 * x.prod(1, keepdim=True)).round(decimals=1)  # targets that repeat share a center
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=64, shuffle=True)

model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
regularizer = oe.OrdinalEntropy(diversity_weight=0.01, tightness_weight=0.01)
tap = oe.capture(model)  # what enters the last linear layer
for _epoch in range(20):
    for inputs, targets in loader:
        loss = mse_loss(model(inputs), targets) + regularizer(tap.features, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

with torch.no_grad():
    error = mse_loss(model(x), y)
    diversity, tightness = regularizer.terms(tap.features, y)
print(f"error {error:.4f}, diversity {diversity:.3f}, tightness {tightness:.3f}")
