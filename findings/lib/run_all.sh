#!/bin/bash
# Run every script of findings/, or those named, one after the other, and sum up: which behaviour is as stated.
cd "$(dirname "$0")/.."
scripts=("$@")
[ $# -gt 0 ] || scripts=(*.sh)
as_stated=()
different=()
for script in "${scripts[@]}"; do
    script="${script%.sh}.sh"
    echo "== $script"
    if bash "$script"; then
        as_stated+=("$script")
    else
        different+=("$script")
    fi
done
echo
echo "${#as_stated[@]} as stated, ${#different[@]} different: ${different[*]:-none}"
[ ${#different[@]} -eq 0 ]
