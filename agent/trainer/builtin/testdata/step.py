"""One step of plain gradient descent with PyTorch, beside the built-in trainer's: same weights, same batch."""
import json, math, struct, sys
import torch
from torch import nn

def load(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8:8 + n])
    head.pop("__metadata__", None)
    return {k: torch.frombuffer(bytearray(raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]), dtype=torch.float32).reshape(v["shape"])
            for k, v in head.items()}

class Norm(nn.LayerNorm):
    """Over the channels of each place of a picture."""
    def forward(self, x):
        return super().forward(x.movedim(1, -1)).movedim(-1, 1) if x.dim() == 4 else super().forward(x)

class Position(nn.Module):
    def __init__(self, places, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(places, width))
    def forward(self, x):
        return x + self.weight

class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.qkv, self.project = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.norm2, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        s = q @ k.transpose(-1, -2) / math.sqrt(d // self.heads)
        s = s.masked_fill(torch.ones(t, t).tril() == 0, -math.inf)
        x = x + self.project((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(torch.relu(self.up(self.norm2(x))))

def build(m):
    if m["kind"] == "transformer":
        return nn.Sequential(nn.Embedding(256, m["embedding"]), Position(m["context"], m["embedding"]),
                             *[Block(m["embedding"], m["heads"]) for _ in range(m["blocks"])], nn.LayerNorm(m["embedding"]), nn.Linear(m["embedding"], 256))
    if m["kind"] == "mlp" and m.get("context"):
        return nn.Sequential(nn.Embedding(256, m["embedding"]), nn.Flatten(), nn.Linear(m["context"] * m["embedding"], m["hidden"][0]), nn.ReLU(), nn.Linear(m["hidden"][0], 256))
    layers, x = [], torch.zeros(2, *m["shape"])
    for line in m["layers"] + ["linear %d" % m["out"]]:
        word, *n = line.split()
        n = [int(v) for v in n]
        c = x.shape[1]
        if word == "linear" and x.dim() == 4:
            layers.append(nn.Flatten())
            x = layers[-1](x)
        layers.append({"conv": lambda: nn.Conv2d(c, n[0], *(n[1:2] or [3]), stride=(n[2:] or [1])[0], padding=(n[1:2] or [3])[0] // 2), "relu": nn.ReLU,
                       "maxpool": lambda: nn.MaxPool2d(n[0]), "avgpool": lambda: nn.AvgPool2d(n[0]), "layernorm": lambda: Norm(c),
                       "batchnorm": lambda: nn.BatchNorm2d(c) if x.dim() == 4 else nn.BatchNorm1d(c), "linear": lambda: nn.Linear(x.shape[1], n[0])}[word]())
        x = layers[-1](x)
    return nn.Sequential(*layers)

def main():
    job = json.load(sys.stdin)
    model = build(job["model"])
    before, after = load(job["before"]), load(job["after"])
    missing, unexpected = model.load_state_dict(before, strict=False)
    assert not unexpected and all(k.endswith("num_batches_tracked") for k in missing), (missing, unexpected)
    x, y = torch.tensor(job["x"]), torch.tensor(job["y"])
    if job["model"].get("context"):
        x = x.long()
    x = x.reshape(job["rows"], *(job["model"].get("shape") or [-1]))
    said = model(x)
    loss = nn.functional.mse_loss(said[:, 0], y) if job["regression"] else nn.functional.cross_entropy(said.reshape(-1, said.shape[-1]), y)
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= job["lr"] * p.grad
    worst = {k: ((v - after[k]).abs().max() / (after[k] - before[k]).abs().max().clamp(min=1e-4)).item() for k, v in model.state_dict().items() if k in after}
    json.dump({"loss": loss.item(), "worst": worst}, sys.stdout)

if __name__ == "__main__":
    main()
