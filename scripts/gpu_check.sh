#!/usr/bin/env bash
# Check and measure jitdelegate on this machine's GPU, in less than 8 minutes and without a network.
#
#     scripts/gpu_check.sh [DIR] [--date DATE] [--seconds N] [--only SECTION ...]
#
# DIR (default: .gpu_check) was made before, on a machine that needs no GPU, by
#
#     python -m scripts.prepare_gpu_check --output DIR [--architectures sm_90,...]
#
# Needs Python >= 3.11 with xxhash; compares with torch, JAX, LiteRT and compiles with numba-cuda where they are
# installed. Writes gpu-results.json to $OUT, or else to docs/, and docs/gpu-results.md. $PYTHON names another Python.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}

if ! "$python" -c 'import xxhash' 2>/dev/null; then
    echo "$python has no xxhash, which jitdelegate hashes programs with. Without a network, carry its wheel:" >&2
    echo "    pip download --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux2014_x86_64 xxhash" >&2
    echo "and unpack it where PYTHONPATH points to." >&2
    exit 1
fi
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 exec "$python" -m scripts.gpu_check "$@"
