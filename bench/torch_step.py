"""A training step of a plain PyTorch model of the same shape on the CPU: the peer of bench/step.ts.

    python3 bench/torch_step.py '{"layers": 4, "heads": 4, "headDim": 64, "modelDim": 256, "feedForward": 704,
                                  "vocabulary": 256, "context": 2048, "steps": 3, "threads": 2}'

Forward, backward and AdamW in float32, full causal attention over one window; prints JSON: median seconds of a step.
"""

import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

p = json.loads(sys.argv[1])
torch.set_num_threads(p["threads"])
torch.manual_seed(1)
T, C, H, D = p["context"], p["modelDim"], p["heads"], p["headDim"]


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(C))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.gain


angles = torch.arange(T)[:, None] * 10_000 ** (-torch.arange(0, D, 2) / D)
cos, sin = angles.cos(), angles.sin()


def rotate(x):  # [H, T, D]
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def attend(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
    scores = (q @ k.transpose(1, 2)) / math.sqrt(D)
    return scores.masked_fill(MASK, float("-inf")).softmax(-1) @ v


MASK = torch.ones(T, T, dtype=torch.bool).triu(1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.qkv = nn.Linear(C, 3 * C, bias=False)
        self.out = nn.Linear(C, C, bias=False)
        self.gate_up = nn.Linear(C, 2 * p["feedForward"], bias=False)
        self.down = nn.Linear(p["feedForward"], C, bias=False)

    def forward(self, x):  # [T, C]
        q, k, v = (s.view(T, H, D).transpose(0, 1) for s in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        x = x + self.out(attend(rotate(q), rotate(k), v).transpose(0, 1).reshape(T, C))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(p["vocabulary"], C)
        self.layers = nn.ModuleList(Layer() for _ in range(p["layers"]))
        self.norm = Norm()
        self.head = nn.Linear(C, p["vocabulary"], bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tokens = torch.randint(p["vocabulary"], (T + 1,))
times = []
for step in range(p["steps"] + 1):
    start = time.perf_counter()
    loss = F.cross_entropy(model(tokens[:-1]), tokens[1:])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step > 0:
        times.append(time.perf_counter() - start)
print(json.dumps({"torch": torch.__version__, "seconds": statistics.median(times)}))
