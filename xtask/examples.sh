#!/usr/bin/env bash
# Runs the commands of the first `sh` block in each example's README, each in an empty folder, with
# the programs that `cargo xtask check` has compiled. The tests in it are left out: they run with all
# others. A command that says "until Ctrl-C" is
# interrupted as a terminal does it, once it has printed a line.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}
work=$(mktemp -d)
group=
trap '[ -z "$group" ] || kill -9 -- "-$group" 2>/dev/null || true; rm -rf "$work"' EXIT
# The user's settings are not for these.
unset "${!EMMER_@}" 2>/dev/null || true
# Each background command is a process group of its own, which gets the signal as a whole.
set -m

ran=0
for page in "$root"/examples/*/README.md; do
    name=$(basename "$(dirname "$page")")
    commands=$(awk '/^```sh/ && !seen { seen = 1; on = 1; next } /^```/ { on = 0 } on' "$page")
    [ "$(grep -c . <<< "$commands")" = 2 ] || { echo "$name: not two commands" >&2; exit 1; }
    line=$(grep '^cargo run ' <<< "$commands") || { echo "$name: no cargo run" >&2; exit 1; }
    # `cargo run -p PACKAGE -- ARGUMENTS`: the program that is compiled already.
    package=$(sed -E 's/^cargo run -p ([a-z-]+).*/\1/' <<< "$line")
    arguments=$(sed -E 's/^cargo run -p [a-z-]+( -- )?//' <<< "$line")
    program=$CARGO_TARGET_DIR/debug/${package/#emmer-cli/emmer}
    [ -x "$program" ] || { echo "$program is not compiled: cargo xtask check --only examples" >&2; exit 1; }
    command="'$program' $arguments"
    mkdir "$work/$name"
    cd "$work/$name"
    echo "$name: ${line%% # *}"
    if [[ $line != *"# until Ctrl-C" ]]; then
        bash -c "$command"
    else
        bash -c "exec ${command%% # *}" > said 2>&1 &
        group=$!
        for _ in $(seq 3000); do
            [ ! -s said ] || break
            kill -0 "$group" 2>/dev/null || break
            sleep 0.1
        done
        kill -INT -- "-$group"
        wait "$group" || { echo "$name ended with exit code $?" >&2; cat said >&2; exit 1; }
        group=
        cat said
    fi
    ran=$((ran + 1))
done
echo "$ran examples do what their pages say"
