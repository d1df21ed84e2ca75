"""A plain training loop: with a term that is added to the loss, and with any method of the library.

The first takes two lines more than without it, and no change to the model. The second lets a method change all that it
may: the head, the loss, the weights, the batch, the features.

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

# a term: two lines more
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


# any method: the loop hands encoder, head and batch to one function
def squared_error(outputs, targets, mask, weight):
    """The task's own loss; a method may bring weights, or a loss of its own in place of this one."""
    return oe.methods.weighted_mean((outputs - targets).square(), mask, weight)


method = oe.methods.create("classification+oe", {"classification": {"bins": 40}, "oe": {"strength": 0.1}})
method.prepare(y, x, width=32)  # once, from the training rows
encoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
head = method.head(32, t=1)
optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters(), *method.parameters()], lr=1e-2)
epochs = 60
for epoch in range(epochs):
    stage = oe.methods.stage_of(method, epoch, epochs)  # some methods train the encoder first
    for inputs, targets in loader:
        batch = oe.methods.Batch(inputs, targets)
        loss = oe.methods.training_loss(method, encoder, head, batch, squared_error, stage=stage)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        method.after_step(encoder)
    method.end_epoch()

with torch.no_grad():
    error = mse_loss(method.decode(head(encoder(x))), y)
print(f"error {error:.4f} of {method.name}")
