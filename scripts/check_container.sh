#!/usr/bin/env bash
# Builds the image of examples/docker as a user without rights, and starts its service as yet another one, with a root
# that is read-only. Needs buildah, and mmdebstrap for the base image, which is made of Debian's packages. Takes some
# minutes, so that it is no part of the continuous integration; `tests/docs/test_docker_example.py` runs the service.
#
#     scripts/check_container.sh [PYTHON]
#
# PYTHON is one of version 3.11, as in Debian 12, with pip.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${1:-python3.11}
work=$(mktemp -d)
trap 'buildah unshare rm -rf "$work"' EXIT
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
buildah=(buildah --root "$work/store" --runroot "$work/run")

cp -r "$root/examples/docker" "$work/context"
cd "$work/context"
git -C "$root" archive --prefix=source/ HEAD | tar x -C "$work"
"$python" -m pip wheel -q --wheel-dir dist "$work/source"
mkdir models site
"$python" -m pip install -q --no-index --find-links dist --target site jitdelegate
PYTHONPATH=site "$python" -m jitdelegate.demo --models models >"$work/told"
rm -r site models/*.png models/partial.tflite # LiteRT runs a part of it, which the image lacks

mmdebstrap -q --mode=unshare --variant=minbase --include=python3,python3-pip bookworm "$work/base.tar"
base=$("${buildah[@]}" from scratch)
"${buildah[@]}" add -q "$base" "$work/base.tar" / >>"$work/told"
"${buildah[@]}" commit -q "$base" localhost/base >>"$work/told"
"${buildah[@]}" bud -q --build-arg BASE=localhost/base -t localhost/warm . >>"$work/told"

"${buildah[@]}" unshare bash -euo pipefail -c '
    image=$("$@" from localhost/warm)
    folder=$("$@" mount "$image")
    mount --bind "$folder" "$folder"
    mount -o remount,ro,bind "$folder"
    run=(chroot --userspec=1000:1000 "$folder" sh -c)
    if "${run[@]}" "touch /tmp/written" 2>/dev/null; then
        echo "the root is not read-only"
        exit 1
    fi
    "${run[@]}" "cd /app && PYTHONPATH=/runtime python3 service.py"
' - "${buildah[@]}"
