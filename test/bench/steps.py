"""Optimizer steps per second of PyTorch on two threads: the model comes as the first line of the input, then one line a turn
with its seconds; each is answered by the steps of it. test/bench starts it."""
import json, os, sys, time
import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../agent/trainer/builtin/testdata"))
import step

torch.set_num_threads(2)
torch.manual_seed(1)
job = json.loads(sys.stdin.readline())
m, batch = job["model"], job["batch"]
model = step.build(m)
if m["kind"] == "transformer":
    data = torch.randint(0, 256, (64 * batch, m["context"] + 1))
    x, y = data[:, :-1], data[:, 1:]
else:
    x, y = torch.randn(64 * batch, *m["shape"]), torch.randint(0, m["out"], (64 * batch,))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)

def train(i):
    at = i % 64 * batch
    said = model(x[at:at + batch])
    loss = nn.functional.cross_entropy(said.reshape(-1, said.shape[-1]), y[at:at + batch].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()

for i in range(5):
    train(i)
for line in sys.stdin:
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < float(line):
        train(steps)
        steps += 1
    print(steps / (time.perf_counter() - began), flush=True)
