#!/usr/bin/env bash
# Check and measure jitdelegate on this machine's GPU, in less than 10 minutes a command and without a network.
#
#     scripts/gpu_check.sh [DIR] [--run NAME | --only SECTION ...] [--join RESULTS ...]
#     scripts/gpu_check.sh --apply RESULTS      # write measured constants to the cost model; needs no GPU
#     scripts/gpu_check.sh --dry-run            # the whole check on a simulated GPU
#
# DIR (default: .gpu_check/first) was made before, on a machine that needs no GPU, by
#
#     python -m scripts.prepare_gpu_check --output DIR [--bundle NAME] [--architectures sm_90,...]
#
# docs/gpu-check.md says which commands to run and what to look at. Needs Python >= 3.11 with numpy and xxhash, and no
# compiler: DIR brings the rest. Compares with torch and LiteRT where they are installed. Writes gpu-results.json,
# gpu-results.md and both as gpu-results.tgz to $OUT, adding to what is there, or else to docs/. $PYTHON names another
# Python.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

if [[ ${1:-} == --dry-run ]]; then
    exec "$python" -m scripts.prepare_gpu_check.dry_run "${@:2}"
fi
bundle=.gpu_check/first
if [[ ${1:--} != -* ]]; then
    bundle=$1
fi
PYTHONPATH="$PYTHONPATH:$bundle/python.zip" # behind what is installed
for package in numpy xxhash flatbuffers llvmlite; do
    if ! "$python" -c "import $package" 2>/dev/null; then
        echo "$python has no $package, which the check needs. Without a network, carry its wheel:" >&2
        echo "    pip download --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux2014_x86_64 $package" >&2
        echo "and unpack it where PYTHONPATH points to." >&2
        exit 1
    fi
done
exec "$python" -m scripts.gpu_check "$@"
