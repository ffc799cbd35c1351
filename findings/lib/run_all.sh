#!/bin/bash
# Run every script of findings/, or those named, one after the other, and sum up: which behaviour is as stated.
here=$(cd "$(dirname "$0")/.." && pwd)
names=("$@")
[ $# -gt 0 ] || names=("$here"/*.sh)
as_stated=0
different=()
for name in "${names[@]}"; do
    name=$(basename "$name" .sh)
    echo "== $name"
    if bash "$here/$name.sh"; then
        as_stated=$((as_stated + 1))
    else
        different+=("$name")
    fi
done
echo
echo "$as_stated as stated, ${#different[@]} different: ${different[*]:-none}"
[ ${#different[@]} -eq 0 ]
