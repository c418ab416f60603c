#!/usr/bin/env bash
# Installs the lowest versions of all dependencies that setup.cfg allows, in an environment of their own, and runs a small
# part of the tests there: each kind of target, LiteRT's interpreter with the delegate, the commands and their tables.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache

for version in 3.11 3.12; do
    for each in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
        "$each" -c 'import venv' 2>/dev/null || continue
        "$each" -m venv "$work/lowest"
        git -C "$root" archive --prefix=source/ HEAD | tar x -C "$work"
        cd "$work/source"
        "$work/lowest/bin/pip" install -q -c scripts/lowest_versions.txt '.[cuda]' pytest pytest-xdist hypothesis
        "$work/lowest/bin/python" -m pytest -p no:cacheprovider tests/api/test_load.py tests/api/test_outputs.py \
            tests/api/test_hosted.py::test_random_graphs_answer_as_litert tests/api/test_commands.py \
            tests/commands/analysis/test_suggestions.py tests/targets/test_cuda_dependent_launch.py
        exit
    done
done
echo "no Python 3.11 or 3.12 is here, for which the lowest versions have wheels"
