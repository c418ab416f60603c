#!/usr/bin/env bash
# Makes a Python for AArch64 from Debian's and PyPI's packages, with all that the tests need, which runs here in qemu's
# user mode; prints the command that runs it. Takes a minute, and 1 GB in the folder, which is used again.
#
#     python=$(scripts/arm_root.sh [FOLDER])
#     PYTHONPATH=$PWD "$python" -m pytest -n 0 tests/targets/test_link.py
#
# It is a Cortex-A76. QEMU_CPU names another processor of qemu's; with "max", LiteRT's answers are wrong where qemu has
# SME, which "max,sme=off" leaves out.
set -euo pipefail
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/jitdelegate-arm}
python=python3.11 # of Debian 12
packages=(libc6 libstdc++6 libgcc-s1 libgomp1 zlib1g "$python" "lib$python-stdlib" bash coreutils)
modules=(numpy numba flatbuffers xxhash platformdirs ai-edge-litert rich pytest pytest-xdist hypothesis ml-dtypes)

fetch() { # ARCHITECTURE FOLDER PACKAGE...: into FOLDER; apt takes nothing for installed, and needs no rights
    local names state=$folder/apt-$1 to=$2
    mkdir -p "$state"/{lists,archives}/partial "$to/packages"
    touch "$state/status"
    apt=(apt-get -q -o APT::Architecture="$1" -o APT::Architectures="$1" -o Dir::State="$state"
        -o Dir::State::status="$state/status" -o Dir::Cache="$state")
    "${apt[@]}" update
    names=$("${apt[@]}" --print-uris -y --no-install-recommends install "${@:3}" |
        sed -nE "s,^'.*/([^/_]+)_[^/]*'.*,\1,p" | sed 's/%2b/+/g')
    (cd "$to/packages" && "${apt[@]}" download $names)
    for each in "$to"/packages/*.deb; do dpkg -x "$each" "$to"; done
}

make() {
    rm -rf "$folder"/{apt-*,host,root,site,python} # nothing else: the folder may be somebody's
    fetch "$(dpkg --print-architecture)" "$folder/host" qemu-user-static
    fetch arm64 "$folder/root" "${packages[@]}"
    python3 -m pip install -q --target "$folder/site" --only-binary=:all: --python-version 3.11 \
        --platform manylinux2014_aarch64 $(printf -- '--platform manylinux_2_%s_aarch64 ' 17 27 28 34) "${modules[@]}"
    mkdir -p "$folder/root/proc" # LiteRT asks there
    for number in 0 1; do
        printf '%s\t: %s\n' processor $number Features "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp \
cpuid asimdrdm lrcpc dcpop asimddp" 'CPU implementer' 0x41 'CPU architecture' 8 'CPU variant' 0x4 'CPU part' 0xd0b \
            'CPU revision' 1
        echo
    done >"$folder/root/proc/cpuinfo"
    cat >"$folder/python" <<END
#!/usr/bin/env bash
root=$folder/root
PYTHONHOME=\$root/usr PYTHONPATH=\${PYTHONPATH:+\$PYTHONPATH:}$folder/site exec \\
    $folder/host/usr/bin/qemu-aarch64-static -cpu \${QEMU_CPU:-cortex-a76} -L \$root -0 $folder/python \\
    \$root/usr/bin/$python "\$@"
END
    chmod +x "$folder/python"
}

[ -x "$folder/python" ] || make >&2
echo "$folder/python"
