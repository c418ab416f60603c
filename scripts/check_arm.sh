#!/usr/bin/env bash
# Runs tests on an emulated AArch64 machine, which `arm_root.sh` makes: a sample in some minutes, or what is named. One
# line says so where the packages cannot be had.
#
#     scripts/check_arm.sh [ARGUMENTS OF PYTEST]
#
# Tests of what qemu does not emulate fail, see docs/ARCHITECTURE.md.
set -euo pipefail
cd "$(dirname "$0")/.."
sample=(tests/runtime/test_cpu_features.py tests/targets/test_link.py tests/targets/test_memory_order.py
    tests/runtime/test_session.py tests/runtime/test_native_requests.py tests/runtime/test_shared_file.py
    tests/engine/litert_delegate/test_delegate.py tests/engine/litert_delegate/test_lives.py
    tests/api/test_hosted_values.py tests/api/test_states.py tests/api/test_compiled_model.py)

told=$(mktemp)
trap 'rm "$told"' EXIT
if ! python=$(scripts/arm_root.sh 2>"$told"); then
    echo "nothing is tested on AArch64, as its packages cannot be had: $(tail -n 1 "$told")"
    exit
fi
PYTHONPATH=$PWD "$python" -m pytest -p no:cacheprovider "${@:-${sample[@]}}"
