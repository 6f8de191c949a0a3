"""A training step of PyTorch on the same card: the yardstick for bench/gpu-step.ts.

    python3 test/gpu/torch_step.py ["29.8M" "541M 32k" ...]

torch.compile, bf16 autocast over f32 weights, fused AdamW, clipping by norm, full attention. Attention is an operation
that the compiler cannot see into: queries, keys and values go into memory in front of it, and three gradients come back.
So one compiled model gives two figures: with copies in the place of attention (the time of the copies themselves taken
off), and with cuDNN's attention. Prints milliseconds per step, and writes torch-step.json into $OUT or build/gpu, which
bench/gpu-step.ts puts beside ours.
"""

import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

aten = torch.ops.aten

# name: width, layers, heads, tokens of a sequence, sequences, vocabulary
SHAPES = {
    "2.2M": (192, 5, 3, 16384, 8, 8192),
    "8.9M": (384, 5, 6, 16384, 4, 8192),
    "29.8M": (640, 6, 10, 16384, 4, 8192),
    "85M": (768, 12, 12, 8192, 8, 32768),
    "85M H6": (768, 12, 6, 8192, 8, 32768),
    "541M 8k": (1792, 14, 14, 8192, 4, 32768),
    "541M 32k": (1792, 14, 14, 32768, 1, 32768),
}

# "copy" or "cudnn": what the operation does when it runs.
mode = "copy"
# What cuDNN's forward pass says beside output and log-sum-exp, the same for every layer: there is no dropout.
said = {}


def contiguous(x):
    return x.clone(memory_format=torch.contiguous_format)


@torch.library.custom_op("mobalab::attend", mutates_args=())
def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Output [B, T, H, D], and log-sum-exps [B H T], of q, k and v [B, T, H, D]."""
    batch, length, heads, _ = v.shape
    if mode == "copy":
        return contiguous(v), torch.empty(batch * heads * length, device=v.device)
    out, lse, *rest = aten._scaled_dot_product_cudnn_attention(
        *(x.transpose(1, 2) for x in (q, k, v)), None, True, 0.0, True, False
    )
    said["lse"], said["rest"] = lse.shape, rest
    return out.transpose(1, 2).contiguous(), lse.reshape(-1)


@attend.register_fake
def _(q, k, v):
    batch, length, heads, _ = v.shape
    lse = v.new_empty(batch * heads * length, dtype=torch.float32)
    return torch.empty_like(v, memory_format=torch.contiguous_format), lse


@torch.library.custom_op("mobalab::attend_backward", mutates_args=())
def attend_backward(
    d: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if mode == "copy":
        return contiguous(d), contiguous(d), contiguous(d)
    cum_q, cum_k, max_q, max_k, seed, offset, _ = said["rest"]
    d, q, k, v, out = (x.contiguous().transpose(1, 2) for x in (d, q, k, v, out))
    gradients = aten._scaled_dot_product_cudnn_attention_backward(
        d, q, k, v, out, lse.view(said["lse"]), seed, offset, None, cum_q, cum_k, max_q, max_k, 0.0, True
    )
    dq, dk, dv = (x.transpose(1, 2).contiguous() for x in gradients)
    return dq, dk, dv


@attend_backward.register_fake
def _(d, q, k, v, out, lse):
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))


def keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs, *output)


attend.register_autograd(lambda ctx, d, _: attend_backward(d, *ctx.saved_tensors), setup_context=keep)


def native(q, k, v):
    """cuDNN's attention as the compiler knows it."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def check_attend():
    """Throws when the operation is not attention."""
    global mode
    mode = "cudnn"
    torch.manual_seed(1)
    inputs = [torch.randn(2, 256, 2, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    d = torch.randn(2, 256, 2, 64, device="cuda", dtype=torch.bfloat16)
    ours = torch.autograd.grad(attend(*inputs)[0], inputs, d)
    with sdpa_kernel(SDPBackend.MATH):
        theirs = torch.autograd.grad(native(*inputs), inputs, d)
    for a, b in zip(ours, theirs):
        error = ((a - b).float().norm() / b.float().norm()).item()
        if not error < 0.03:
            raise RuntimeError(f"gradients differ by {error:.3g}")


class Block(nn.Module):
    def __init__(self, width, heads, attention):
        super().__init__()
        self.attention = attention
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
        x = x + self.out(self.attention(q, k, v.contiguous()).reshape(batch, length, width))
        h = F.rms_norm(x, (width,), self.norm2, 1e-5)
        gate, up = self.gate_up(h).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class Decoder(nn.Module):
    def __init__(self, width, layers, heads, length, vocabulary, attention):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, attention) for _ in range(layers))
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


def make_step(name, attention):
    width, layers, heads, length, batch, vocabulary = SHAPES[name]
    torch.manual_seed(1)
    torch._dynamo.reset()
    model = Decoder(width, layers, heads, length, vocabulary, attention).cuda()
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

    return step


def measure(name, opaque):
    """`opaque`: one compiled model serves both figures."""
    global mode
    width, layers, heads, length, batch, vocabulary = SHAPES[name]
    mode = "copy"
    start = time.time()
    step = make_step(name, lambda q, k, v: attend(q, k, v)[0])
    step()
    torch.cuda.synchronize()
    compile_s = time.time() - start
    outside = milliseconds(step)
    x = torch.randn(batch, length, heads, width // heads, device="cuda", dtype=torch.bfloat16)
    copies = 4 * layers * milliseconds(x.clone)
    mode = "cudnn"
    if opaque:
        whole = milliseconds(step)
    else:
        del step
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            whole = milliseconds(make_step(name, native))
    return {
        "outside_ms": outside - copies,
        "copies_ms": copies,
        "step_ms": whole,
        "tokens_per_second": batch * length / whole * 1000,
        "memory_gb": torch.cuda.max_memory_allocated() / 1e9,
        "compile_s": compile_s,
    }


def main():
    torch.set_float32_matmul_precision("high")
    opaque = True
    try:
        check_attend()
    except Exception as error:
        print(f"  torch: cuDNN's attention is compiled apart: {str(error).splitlines()[0]}")
        opaque = False
    results = {}
    for name in sys.argv[1:] or SHAPES:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        r = results[name] = measure(name, opaque)
        print(
            f"  torch {name:9} {r['outside_ms']:8.2f} ms outside attention (copies {r['copies_ms']:.2f} ms),"
            f" {r['step_ms']:8.2f} ms with cuDNN attention, {r['tokens_per_second'] / 1000:8.1f} k tokens/s,"
            f" {r['memory_gb']:.1f} GB, compiled in {r['compile_s']:.0f} s",
            flush=True,
        )
        folder = os.environ.get("OUT", "build/gpu")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "torch-step.json"), "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
