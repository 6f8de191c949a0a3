#!/usr/bin/env bash
# What a study has measured, packed for a way back that takes few files of 16 MiB: everything but data and checkpoints.
#   bash bench/pack-results.sh studies/h200-16k "$OUT"      writes $OUT/<study>.part-00, -01 ...
# There, runs that are not there yet are added and older records replaced:
#   cat <study>.part-* | tar -xJ -C studies
set -euo pipefail
study=$(basename "$1")
tar -C "$(dirname "$1")" --exclude="$study/data" --exclude='checkpoint*' --exclude='*.lock' -c "$study" |
  xz -T0 -6 | split -b 15m -d - "$2/$study.part-"
ls -l "$2"
