"""The models of conv_step.c in PyTorch: torch_step.py lenet|resnet eager|compile THREADS; the same protocol, but for its
first two lines."""
import sys
import time

import torch
from torch import nn

name, how, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.set_num_threads(threads)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.x = nn.Parameter(torch.rand(8, 64, 56, 56) * 2 - 1)
        self.conv1, self.conv2 = (nn.Conv2d(64, 64, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(64), nn.BatchNorm2d(64)

    def forward(self, _):
        y = torch.relu(self.norm1(self.conv1(self.x)))
        y = torch.relu(self.norm2(self.conv2(y)) + self.x)
        return (y * y).mean()


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
        self.labels = torch.arange(64) % 10

    def forward(self, x):
        return nn.functional.cross_entropy(self.layers(x), self.labels)


model = LeNet() if name == "lenet" else Block()
run = torch.compile(model) if how == "compile" else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
x = torch.rand(64, 1, 28, 28) * 2 - 1
for line in sys.stdin:
    steps, start = int(line), time.perf_counter()
    for _ in range(steps):
        loss = run(x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    loss = loss.item()
    print(f"{(time.perf_counter() - start) / steps:.9f} {loss:.6f}", flush=True)
