#!/bin/sh
# Writes jitdelegate/program/program.fbs, the schema of a program's table for other tools, from program/program.py, and
# lets flatc (Debian: flatbuffers-compiler) check it. With --check: exit 1 if the file is not current.
set -eu
cd "$(dirname "$0")/.."
schema=jitdelegate/program/program.fbs
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
new=$folder/program.fbs

"${PYTHON:-python3}" - >"$new" <<'PYTHON'
from jitdelegate.program import program


def table(one):
    fields = "".join(f"  {name}:{kind if isinstance(kind, str) else f'[{kind.name}]'};\n" for name, kind in one.fields)
    return f"table {one.name} {{\n{fields}}}\n"


print("// The table of a compiled program. Written by scripts/generate_program_schema.sh; do not edit.\n")
print("namespace jitdelegate;\n")
for one in (program._KINDS["tuple[tuple[str, int], ...]"], *(
    getattr(program, name).layout
    for name in ("Port", "Signature", "Operator", "Kernel", "State", "Partition", "IdleSubgraph", "Program")
)):
    print(table(one))
print(f'root_type {program.Program.layout.name};\nfile_identifier "{program.TABLE_IDENTIFIER.decode()}";')
PYTHON

if command -v flatc >/dev/null; then
    flatc --conform "$new" "$new"
fi
if [ "${1:-}" = --check ]; then
    cmp "$new" "$schema"
else
    cp "$new" "$schema"
fi
