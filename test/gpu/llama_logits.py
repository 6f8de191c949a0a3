"""Compares our logits with transformers' LlamaForCausalLM in float32.

python3 test/gpu/llama_logits.py FOLDER

FOLDER is what make-logits.ts writes: a Hugging Face folder with logits.json (tokens, and our logits for them).
Prints the largest absolute difference; exits 1 when it is above 1e-4 or when a weight was not loaded.
"""

import json
import os
import sys

import torch
from transformers import LlamaForCausalLM

TOLERANCE = 1e-4


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = sys.argv[1]
    with open(os.path.join(folder, "logits.json")) as file:
        ours = json.load(file)
    model, info = LlamaForCausalLM.from_pretrained(
        folder, attn_implementation="eager", output_loading_info=True
    )
    tied = model.config.tie_word_embeddings
    missing = [key for key in info["missing_keys"] if not (tied and key == "lm_head.weight")]
    if missing or info["unexpected_keys"]:
        print(f"weights missing: {missing}, unexpected: {list(info['unexpected_keys'])}")
        return 1
    with torch.no_grad():
        theirs = model.float().eval()(torch.tensor([ours["tokens"]])).logits[0].double()
    expected = torch.tensor(ours["logits"], dtype=torch.float64)
    if theirs.shape != expected.shape:
        print(f"logits have shape {tuple(theirs.shape)}, ours {tuple(expected.shape)}")
        return 1
    difference = (theirs - expected).abs().max().item()
    print(f"largest difference {difference:.3g} over {expected.numel()} logits up to {expected.abs().max():.3g}")
    return 0 if difference <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
