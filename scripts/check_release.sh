#!/usr/bin/env bash
# Builds the sdist, and the wheel from it, checks what they hold, and runs the wheel, away from the checkout, under every
# Python from 3.11 to 3.14 that this machine has, but that which builds: the whole suite runs with it.
#
#     scripts/check_release.sh [PYTHON]    PYTHON builds; it needs the extra `release`
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${1:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache

git -C "$root" ls-files | sort >"$work/tracked"
git -C "$root" archive --prefix=source/ HEAD | tar x -C "$work"
"$python" -m build -q --outdir "$work/dist" "$work/source"
twine=$("$python" -c 'import os, sys; print(os.path.dirname(sys.executable))')
"$twine/twine" check --strict "$work"/dist/*
(cd "$root" && "$twine/check-wheel-contents" "$work"/dist/*.whl)
tar tzf "$work"/dist/*.tar.gz | sed 's,^[^/]*/,,' | sort >"$work/shipped"
missing=$(comm -23 "$work/tracked" "$work/shipped" | grep -vxF .gitignore || true)
[ -z "$missing" ] || { echo "the sdist lacks: $missing" >&2; exit 1; }

own=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
found=0
for version in 3.11 3.12 3.13 3.14; do
    [ "$version" != "$own" ] || continue
    for each in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
        "$each" -c 'import venv' 2>/dev/null || continue
        echo "Python $version"
        "$each" -m venv "$work/$version"
        "$work/$version/bin/pip" install -q "$work"/dist/*.whl pytest hypothesis
        (cd "$work" && "$work/$version/bin/python" -m jitdelegate.demo >"$work/demo.txt") || { cat "$work/demo.txt"; exit 1; }
        (cd "$work/source" && mv jitdelegate not_imported && mv cache_tools not_imported/ &&
            "$work/$version/bin/python" -m pytest -q -o addopts= -p no:cacheprovider tests/api/test_load.py tests/api/test_outputs.py &&
            mv not_imported/cache_tools . && mv not_imported jitdelegate)
        rm -r "${work:?}/$version"
        found=$((found + 1))
        break
    done
done
echo "the release is good under $found other versions of Python"
