"""A training step of PyTorch with attention replaced by a copy: the yardstick for dense-speed.test.ts, on the same card.

    python3 test/gpu/torch_step.py ["29.8M" "541M" ...]

torch.compile, bf16 autocast over f32 weights, fused AdamW, clipping by norm. The copy is an operation that the compiler
cannot see into, as an attention kernel is: queries, keys and values go into memory in front of it, and three gradients
come back; the time of the copies themselves is taken off. Prints milliseconds per step.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

# name: width, layers, heads, tokens of a sequence, sequences, vocabulary
SHAPES = {
    "2.2M": (192, 5, 3, 16384, 8, 8192),
    "8.9M": (384, 5, 6, 16384, 4, 8192),
    "29.8M": (640, 6, 10, 16384, 4, 8192),
    "85M": (768, 12, 12, 8192, 8, 32768),
    "85M H6": (768, 12, 6, 8192, 8, 32768),
    "541M": (1792, 14, 14, 8192, 4, 32768),
    "541M 32k": (1792, 14, 14, 32768, 1, 32768),
}


@torch.library.custom_op("mobalab::copy", mutates_args=())
def copy(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return v.clone(memory_format=torch.contiguous_format)


@copy.register_fake
def _(q, k, v):
    return torch.empty_like(v, memory_format=torch.contiguous_format)


@torch.library.custom_op("mobalab::copy_backward", mutates_args=())
def copy_backward(d: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return tuple(d.clone(memory_format=torch.contiguous_format) for _ in range(3))


@copy_backward.register_fake
def _(d):
    return tuple(torch.empty_like(d, memory_format=torch.contiguous_format) for _ in range(3))


copy.register_autograd(lambda ctx, d: copy_backward(d))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        hidden = -(-8 * width // 3 // 64) * 64
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.norm1 = nn.Parameter(torch.ones(width))
        self.norm2 = nn.Parameter(torch.ones(width))

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        h = F.rms_norm(x, (width,), self.norm1, 1e-5)
        q, k, v = self.qkv(h).view(batch, length, 3, self.heads, -1).unbind(2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        x = x + self.out(copy(q, k, v.contiguous()).reshape(batch, length, width))
        h = F.rms_norm(x, (width,), self.norm2, 1e-5)
        gate, up = self.gate_up(h).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class Decoder(nn.Module):
    def __init__(self, width, layers, heads, length, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.Parameter(torch.ones(width))
        self.head = nn.Linear(width, vocabulary, bias=False)
        half = width // heads // 2
        angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angles.cos()[:, None, :].float())
        self.register_buffer("sin", angles.sin()[:, None, :].float())

    def forward(self, tokens, targets):
        x = self.embedding(tokens).bfloat16()
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        x = F.rms_norm(x, x.shape[-1:], self.norm, 1e-5)
        logits = self.head(x)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def milliseconds(run, repeats=10):
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[repeats // 2]


def measure(name):
    width, layers, heads, length, batch, vocabulary = SHAPES[name]
    torch.manual_seed(1)
    torch._dynamo.reset()
    model = Decoder(width, layers, heads, length, vocabulary).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(vocabulary, (batch, length), device="cuda")
    targets = torch.randint(vocabulary, (batch, length), device="cuda")
    compiled = torch.compile(model)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    whole = milliseconds(step)
    x = torch.randn(batch, length, heads, width // heads, device="cuda", dtype=torch.bfloat16)
    copies = 4 * layers * milliseconds(x.clone)
    memory = torch.cuda.max_memory_allocated() / 1e9
    print(f"  torch {name:9} {whole - copies:8.2f} ms per step outside attention (copies {copies:.2f} ms, {memory:.1f} GB)")


torch.set_float32_matmul_precision("high")
for shape in sys.argv[1:] or SHAPES:
    measure(shape)
