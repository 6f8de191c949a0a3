#!/usr/bin/env bash
# The tests that need a card, on a GPU machine, in the project's root. Before, where Node is:
#   npm run build && npm run build:cuda && npm run build:gpu
# then carry the tree over, with build/, dist/ and the production node_modules (.gpu/unpack.sh unpacks them if packed).
# Arguments: test files without ".test.js" (default: host ops step); with --memcheck, --synccheck or --racecheck first,
# under that tool of compute-sanitizer. PATTERN: only tests of such names. Small shapes of each kernel, minutes a tool
# (racecheck does not know the barriers of TMA: only the kernels of all cards):
#   PATTERN='documents of 1, 2, B-1|k=3 D=|B=16 k=3|one hot|close' test/gpu/run.sh --synccheck ops
#   test/gpu/run.sh train    200 steps on the CPU and on the card compared, recomputation, evaluation, tokens/s, host share
#   test/gpu/run.sh peers    NCCL on one card; with two: losses, tokens/s at 541M, a killed process
#   test/gpu/run.sh faults   out of memory, missing libraries, no card, a loss that is not finite: through the command line
set -uo pipefail
cd "$(dirname "$0")/../.."
if [ -f .gpu/unpack.sh ]; then . .gpu/unpack.sh; fi
checker=()
case "${1:-}" in
  --memcheck)
    # Asking for one parameter too many is how a kernel's arguments are counted: failed API calls are not what is sought.
    checker=(compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9)
    shift
    ;;
  --synccheck | --racecheck)
    checker=(compute-sanitizer --tool "${1#--}" --error-exitcode 9)
    shift
    ;;
esac
# Where the CPU backend of this build looks for its kernels.
mkdir -p build/gpu/build && cp build/*.wasm build/gpu/build/
out=${OUT:-build/gpu}
status=0

# $1: file, $2: log. Figures and failures are shown as they come; everything is in the log.
tests() {
  "${checker[@]}" node --test-reporter=spec ${PATTERN:+"--test-name-pattern=$PATTERN"} "build/gpu/test/gpu/$1.test.js" 2>&1 |
    tee "$out/$2.log" |
    grep --line-buffered -E '^ *(  |✖|﹣|ℹ (tests|pass|fail|skipped)|========= )' |
    grep --line-buffered -vE '✔|^ +at |ℹ .* 0$|does not match pattern'
  return "${PIPESTATUS[0]}"
}

for name in "${@:-host ops step}"; do
  for file in $name; do
    echo "== $file"
    if [ "$file" = ops ]; then
      # One process a core: the reference takes the time.
      shards=$(($(nproc) < 16 ? $(nproc) : 16))
      processes=()
      rm -f "$out"/ops-*.log
      for ((i = 0; i < shards; i++)); do
        SHARD=$i/$shards tests ops "ops-$i" &
        processes+=($!)
      done
      for process in "${processes[@]}"; do wait "$process" || status=1; done
      cat "$out"/ops-*.log | awk '/^ℹ (tests|pass|fail|skipped) /{n[$2] += $3} END {for (i in n) print "  of all: " i, n[i]}'
      echo "  $SECONDS s since the start"
    else
      tests "$file" "$file" || status=1
    fi
  done
done
exit $status
