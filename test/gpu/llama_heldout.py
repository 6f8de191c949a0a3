"""Compares our held-out loss with that of transformers' LlamaForCausalLM in float32, on the exported checkpoint.

    python3 test/gpu/llama_heldout.py [FOLDER]        default .gpu/heldout, which make-heldout.ts writes

Runs on the CPU. Prints both mean losses in nats; exits 1 when they are more than 1e-3 apart or a weight was not loaded.
"""

import json
import os
import sys

import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM

TOLERANCE = 1e-3


def main() -> int:
    folder = sys.argv[1] if len(sys.argv) > 1 else ".gpu/heldout"
    with open(os.path.join(folder, "heldout.json")) as file:
        ours = json.load(file)
    model, info = LlamaForCausalLM.from_pretrained(
        os.path.join(folder, "model"), attn_implementation="eager", output_loading_info=True
    )
    if info["missing_keys"] or info["unexpected_keys"]:
        print(f"weights missing: {list(info['missing_keys'])}, unexpected: {list(info['unexpected_keys'])}")
        return 1
    model = model.float().eval()
    windows = torch.tensor(ours["windows"])
    total = 0.0
    with torch.no_grad():
        for window in windows:
            logits = model(window[None, :-1]).logits[0]
            total += F.cross_entropy(logits.double(), window[1:], reduction="sum").item()
    tokens = windows.shape[0] * (windows.shape[1] - 1)
    if tokens != ours["predicted_tokens"]:
        print(f"{tokens} tokens, ours are {ours['predicted_tokens']}")
        return 1
    difference = total / tokens - ours["lm_loss"]
    print(f"held-out loss {total / tokens:.6f} in transformers, {ours['lm_loss']:.6f} by mobalab eval: {difference:.2g} apart over {tokens} tokens")
    return 0 if abs(difference) <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
