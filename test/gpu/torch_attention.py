"""cuDNN's attention through PyTorch on the same card: the yardstick for bench/gpu-attention.ts.

    python3 test/gpu/torch_attention.py [d128 d64 gqa]

Causal full attention in bf16, batch 1, random data, layout [1, H, T, D]; forward, and forward with backward; medians by
events on the card after warm-up. What would take more than LONGEST seconds is left out (null), as is what fails; what
takes more than three seconds is called once. The card is kept busy while the host prepares a call, whose time thus is
the card's alone. Prints milliseconds, and writes torch-attention.json into $OUT or build/gpu, which
bench/gpu-attention.ts puts beside ours.
"""

import json
import os
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

# name: query heads, key and value heads, head dimension, contexts
LAYERS = {
    "d128": (16, 16, 128, [2**p for p in range(11, 21)]),
    "d64": (16, 16, 64, [8192, 32768, 131072]),
    "gqa": (32, 8, 128, [8192, 32768, 131072]),
}
LONGEST = {"forward": 15, "training": 4}


def milliseconds(run, expected):
    """`expected`: from the context before, or None."""
    once = expected is not None and expected > 3000
    if not once:
        for _ in range(2):
            run()
    repeats = 1 if once else 3 if (expected or 0) > 100 else 10
    times = []
    for _ in range(repeats):
        torch.cuda._sleep(2_000_000_000 if once else 5_000_000)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[repeats // 2]


def make_run(heads, kv_heads, dim, length, training):
    """The call to time, and whether keys and values had to be repeated for every query head."""

    def tensor(heads, grad=training):
        return torch.randn(1, heads, length, dim, device="cuda", dtype=torch.bfloat16, requires_grad=grad)

    q, k, v = tensor(heads), tensor(kv_heads), tensor(kv_heads)
    d = tensor(heads, False) if training else None

    def run(k=k, v=v):
        with torch.set_grad_enabled(training):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=k.shape[1] != heads)
            if training:
                torch.autograd.grad(out, (q, k, v), d)

    if kv_heads == heads:
        return run, False
    try:
        run()
        return run, False
    except RuntimeError:
        wide = [x.detach().repeat_interleave(heads // kv_heads, 1).requires_grad_(training) for x in (k, v)]
        return lambda: run(*wide), True


def measure(name):
    heads, kv_heads, dim, contexts = LAYERS[name]
    rows = []
    for length in contexts:
        row = {"layer": name, "context": length}
        for pass_ in ("forward", "training"):
            last = rows[-1] if rows else None
            before = last and last[f"{pass_}_ms"]
            expected = before and before * (length / last["context"]) ** 2
            ended = last is not None and before is None
            if ended or (expected or 0) > 1000 * LONGEST[pass_]:
                row[f"{pass_}_ms"] = None
                continue
            torch.cuda.empty_cache()
            try:
                run, row["repeated"] = make_run(heads, kv_heads, dim, length, pass_ == "training")
                row[f"{pass_}_ms"] = milliseconds(run, expected)
            except RuntimeError as error:
                print(f"  cuDNN {name} {length} {pass_}: {str(error).splitlines()[0]}")
                row[f"{pass_}_ms"] = None
            run = None
        rows.append(row)
        text = {p: "-" if row[f"{p}_ms"] is None else f"{row[f'{p}_ms']:.3f}" for p in LONGEST}
        print(f"  cuDNN {name:5} {length:8} forward {text['forward']:>10} ms, with backward {text['training']:>10} ms", flush=True)
    return rows


def main():
    torch.manual_seed(1)
    rows = []
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        for name in sys.argv[1:] or LAYERS:
            rows += measure(name)
    versions = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    folder = os.environ.get("OUT", "build/gpu")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "torch-attention.json"), "w") as file:
        json.dump({**versions, "card": torch.cuda.get_device_name(), "rows": rows}, file, indent=2)


if __name__ == "__main__":
    main()
