import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

dataset = TensorDataset(torch.randn(1000, 20), torch.randint(0, 3, (1000,)))
model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for x, y in DataLoader(dataset, batch_size=32, shuffle=True):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
import tensorturn; tensorturn.save_file(model.state_dict(), "model.safetensors")
