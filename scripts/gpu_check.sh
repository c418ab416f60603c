#!/usr/bin/env bash
# Check and measure jitdelegate on this machine's GPU, in less than 10 minutes a command and without a network.
#
#     scripts/gpu_check.sh [DIR] [--run NAME | --only SECTION ...] [--join JSON ...]
#
# DIR (default: .gpu_check/first) was made before, on a machine that needs no GPU, by
#
#     python -m scripts.prepare_gpu_check --output DIR [--bundle NAME] [--architectures sm_90,...]
#
# docs/gpu-check.md says which commands to run and what to look at. Needs Python >= 3.11 with numpy, flatbuffers,
# llvmlite and xxhash; compares with torch, JAX, LiteRT and compiles with numba-cuda where they are installed. Writes
# gpu-results.json and gpu-results.md to $OUT, adding to what is there, or else to docs/. $PYTHON names another Python.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}

for package in numpy flatbuffers llvmlite xxhash; do
    if ! "$python" -c "import $package" 2>/dev/null; then
        echo "$python has no $package, which the check needs. Without a network, carry its wheel:" >&2
        echo "    pip download --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux2014_x86_64 $package" >&2
        echo "and unpack it where PYTHONPATH points to." >&2
        exit 1
    fi
done
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 exec "$python" -m scripts.gpu_check "$@"
