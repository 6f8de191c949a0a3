#!/usr/bin/env bash
# What a study has measured, packed for a way back that takes few files of 16 MiB: everything but data and checkpoints.
#   bash bench/pack-results.sh studies/h200-16k "$OUT"      writes $OUT/<study>.part-00, -01 ...
# There, runs that are not there yet are added and older records replaced:
#   cat <study>.part-* | tar -xJ -C studies
set -euo pipefail
study=$(basename "$1")
# A study that is still training: tar ends with 1 when a file grows as it is read, and what was read is whole lines.
{ tar -C "$(dirname "$1")" --exclude="$study/data" --exclude='checkpoint*' --exclude='*.lock' -c "$study" || [ $? = 1 ]; } |
  xz -T0 -6 | split -b 15m -d - "$2/$study.part-"
ls -l "$2"
