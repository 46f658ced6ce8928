"""A plain classifier on a part of Fashion-MNIST: small enough to try a pool in half a minute."""
import torch
import torch.nn.functional as F
from torch import nn

import fashion
import tensorturn  # 1

torch.manual_seed(1)
train, test = fashion.load(6000, 1000)
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def evaluate(model):
    logits = model(test.tensors[0])
    return (logits.argmax(1) == test.tensors[1]).float().mean().item(), F.cross_entropy(logits, test.tensors[1]).item()


job = tensorturn.join(model, optimizer, train, evaluate=evaluate, predict=lambda model, x: model(x).softmax(1))  # 2
for x, y in job.batches(batch_size=32):  # 3
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    job.log(loss=loss)  # 4
