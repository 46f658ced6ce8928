"""A small GPT over bytes: tied embeddings, a schedule on the run's sample clock. The text is a licence that Debian installs."""
import os

import torch
import torch.nn.functional as F
from torch import nn

import tensorturn  # 1

CONTEXT = 64
torch.manual_seed(1)
raw = open(os.environ.get("GPT_TEXT", "/usr/share/common-licenses/GPL-3"), "rb").read()
text = torch.tensor(list(raw))
windows = text[:len(text) // (CONTEXT + 1) * (CONTEXT + 1)].reshape(-1, CONTEXT + 1)
held = torch.arange(len(windows)) % 11 == 0
train, test = torch.utils.data.TensorDataset(windows[~held][:480]), windows[held]


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.one, self.two = nn.LayerNorm(d), nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = [t.reshape(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv(self.one(x)).chunk(3, -1)]
        a = (q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5 + self.mask[:n, :n]).softmax(-1)
        x = x + self.out((a @ v).transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.two(x))


class GPT(nn.Module):
    def __init__(self, d=64, layers=2, heads=4):
        super().__init__()
        self.table, self.place = nn.Embedding(256, d), nn.Embedding(CONTEXT, d)
        self.blocks, self.norm = nn.Sequential(*[Block(d, heads) for _ in range(layers)]), nn.LayerNorm(d)
        self.head = nn.Linear(d, 256, bias=False)
        self.head.weight = self.table.weight  # tied: travels once
        nn.init.normal_(self.table.weight, std=0.02)
        nn.init.normal_(self.place.weight, std=0.02)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.table(x) + self.place.weight[:x.shape[1]])))


def loss_of(model, w):
    return F.cross_entropy(model(w[:, :-1]).flatten(0, 1), w[:, 1:].flatten())


def evaluate(model):
    model.eval()
    hit = (model(test[:, :-1]).argmax(-1) == test[:, 1:]).float().mean().item()
    return hit, loss_of(model, test).item()


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
steps = 480 // 16 * 16
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=3e-4)
job = tensorturn.join(model, optimizer, train, evaluate=evaluate, scheduler=schedule)  # 2
for (w,) in job.batches(batch_size=16):  # 3
    optimizer.zero_grad()
    loss = loss_of(model, w)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    job.log(loss=loss)  # 4
