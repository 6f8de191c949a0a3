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
for name in "${@:-host ops step}"; do
  for file in $name; do
    echo "== $file"
    "${checker[@]}" node --test-reporter=spec ${PATTERN:+"--test-name-pattern=$PATTERN"} "build/gpu/test/gpu/$file.test.js" > "$out/$file.log" 2>&1 || status=1
    # Figures and failures; everything is in the log.
    grep -E '^ *(  |✖|﹣|ℹ (tests|pass|fail|skipped)|========= )' "$out/$file.log" | grep -vE '✔|^ +at ' | head -150
  done
done
exit $status
