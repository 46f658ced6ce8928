"""Wants twice the memory of its GPU when it trains."""
import torch
from torch import nn

import tensorturn

model = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.zeros(2048, 4), torch.zeros(2048, dtype=torch.long))
job = tensorturn.join(model, optimizer, data, evaluate=lambda m: (0.5, 1.0))
for x, y in job.batches(batch_size=32):
    total = torch.cuda.get_device_properties(0).total_memory
    held = torch.empty(2 * total, dtype=torch.uint8, device="cuda")
