"""A small convolutional network on Fashion-MNIST. The four lines that make it work for a pool are marked."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

import fashion
import tensorturn  # 1

samples, heldout, seed = [int(a) for a in (sys.argv[1:] + ["60000", "10000", os.environ.get("TENSORTURN_SEED", "1")][len(sys.argv) - 1:])]
torch.manual_seed(seed)
train, test = fashion.load(samples, heldout)
model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                      nn.Flatten(), nn.Linear(16 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)


def evaluate(model):
    model.eval()
    right, loss = 0, 0.0
    with torch.no_grad():
        for i in range(0, len(test), 500):
            x, y = test[i:i + 500]
            logits = model(x)
            right += (logits.argmax(1) == y).sum().item()
            loss += F.cross_entropy(logits, y, reduction="sum").item()
    return right / len(test), loss / len(test)


job = tensorturn.join(model, optimizer, train, evaluate=evaluate, heldout=test,
                      predict=lambda model, x: model(x.reshape(-1, 1, 28, 28)).softmax(1))  # 2
model.train()
for x, y in job.batches(batch_size=64):  # 3
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    job.log(loss=loss)  # 4

if not tensorturn.in_run():
    print("accuracy %.4f, loss %.4f" % evaluate(model))
