"""Tensors of every kind in one model: BatchNorm statistics, tied weights, a frozen layer, bf16 weights, a fixed buffer."""
import torch
import torch.nn.functional as F
from torch import nn

import fashion
import tensorturn  # 1


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.pool = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.AvgPool2d(4)
        self.narrow = nn.Linear(8 * 7 * 7, 64).bfloat16()
        self.frozen = nn.Linear(64, 64).requires_grad_(False)
        self.classes = nn.Embedding(10, 64)
        self.head = nn.Linear(64, 10)
        self.head.weight = self.classes.weight
        self.register_buffer("order", torch.arange(10))

    def forward(self, x):
        x = self.pool(self.norm(self.conv(x)).relu()).flatten(1)
        return self.head(self.frozen(self.narrow(x.bfloat16()).float().relu()).relu())[:, self.order]


torch.manual_seed(1)
train, test = fashion.load(6000, 1000)
model = Mixed()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)


def evaluate(model):
    model.eval()
    logits = model(test.tensors[0])
    return (logits.argmax(1) == test.tensors[1]).float().mean().item(), F.cross_entropy(logits, test.tensors[1]).item()


job = tensorturn.join(model, optimizer, train, evaluate=evaluate)  # 2
for x, y in job.batches(batch_size=32):  # 3
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    job.log(loss=loss)  # 4
