"""A LoRA fine-tune: a frozen network and small trained factors beside its layers. Only the factors travel; the frozen part
must be the same on every machine, which its digest shows."""
import torch
import torch.nn.functional as F
from torch import nn

import fashion
import tensorturn  # 1


class LoRA(nn.Module):
    """y = frozen(x) + x·A·B·scale, with B zero at the start."""

    def __init__(self, frozen, rank=4, scale=2.0):
        super().__init__()
        self.frozen, self.scale = frozen.requires_grad_(False), scale
        self.a = nn.Parameter(torch.randn(frozen.in_features, rank) / frozen.in_features ** 0.5)
        self.b = nn.Parameter(torch.zeros(rank, frozen.out_features))

    def forward(self, x):
        return self.frozen(x) + x @ self.a @ self.b * self.scale


torch.manual_seed(1)  # the frozen part: a real one would be loaded from a file
train, test = fashion.load(6000, 1000)
model = nn.Sequential(nn.Flatten(), LoRA(nn.Linear(784, 128)), nn.ReLU(), LoRA(nn.Linear(128, 10)))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)


def evaluate(model):
    logits = model(test.tensors[0])
    return (logits.argmax(1) == test.tensors[1]).float().mean().item(), F.cross_entropy(logits, test.tensors[1]).item()


job = tensorturn.join(model, optimizer, train, evaluate=evaluate)  # 2
for x, y in job.batches(batch_size=32):  # 3
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    job.log(loss=loss)  # 4
