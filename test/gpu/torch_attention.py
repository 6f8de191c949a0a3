"""cuDNN's attention through PyTorch on the same card: the yardstick for bench/gpu-attention.ts.

    python3 test/gpu/torch_attention.py [d128 d64 gqa]

Causal full attention in bf16, batch 1, normal random data, layout [1, H, T, D]; forward, and forward with backward. As
many calls in a row as `time` of src/study/attention-speed.ts makes of ours: a card at rest runs at a higher clock for a
while, and a few calls with pauses would be measured at that. The card is kept busy while the host gets ahead, so that
the time is the card's alone. What would take more than LONGEST seconds is left out (null), as is what fails. Prints
milliseconds, and writes torch-attention.json into $OUT or build/gpu, which bench/gpu-attention.ts puts beside ours.
"""

import json
import math
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


def median(values):
    return sorted(values)[len(values) // 2]


def times(run, groups, calls, head_start=60_000_000):
    """Milliseconds a call of groups of calls, without a pause between them; `head_start` of the host in cycles."""
    torch.cuda.synchronize()
    torch.cuda._sleep(head_start)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(groups + 1)]
    events[0].record()
    for event in events[1:]:
        for _ in range(calls):
            run()
        event.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / calls for start, end in zip(events, events[1:])]


def milliseconds(run, expected):
    """Median of a call. `expected`: from the context before, or None."""
    if (expected or 0) > 2000:
        return times(run, 1, 1, head_start=2_000_000_000)[0]
    run()
    [once] = times(run, 1, 1)
    if once > 300:
        return median([once, *times(run, 2, 1)])
    # The first group warms up.
    return median(times(run, 6, max(1, min(100, math.ceil(30 / once))))[1:])


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
