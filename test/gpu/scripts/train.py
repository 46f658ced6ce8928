"""A small classifier of points on a ring, on the slot's GPU."""
import os

import torch
import torch.nn.functional as F
from torch import nn

import tensorturn

assert os.environ["CUDA_VISIBLE_DEVICES"].startswith("GPU-"), "the slot's GPU is not named by its UUID"
assert torch.cuda.device_count() == 1, "a slot sees one GPU"
torch.manual_seed(1)
points = torch.randn(2304, 16, generator=torch.Generator().manual_seed(7))
classes = (points[:, :2].norm(dim=1) > 1.2).long()
train = torch.utils.data.TensorDataset(points[:2048], classes[:2048])
model = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 2)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def evaluate(model):
    logits = model(points[2048:].cuda())
    want = classes[2048:].cuda()
    return (logits.argmax(1) == want).float().mean().item(), F.cross_entropy(logits, want).item()


job = tensorturn.join(model, optimizer, train, evaluate=evaluate)
for x, y in job.batches(batch_size=32):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    job.log(loss=loss)
