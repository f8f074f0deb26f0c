#!/usr/bin/env bash
# Follows docs/getting-started.md to the letter in an empty folder, and compares what it prints. The
# crate comes by its path in place of its version.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
page=$root/docs/getting-started.md
work=$(mktemp -d)
silo=
trap '[ -z "$silo" ] || kill -9 "$silo" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"

cargo new --quiet --vcs none --lib hello
cd hello
cargo add --quiet --path "$root/crates/emmer" emmer
cargo add --quiet --dev --path "$root/crates/emmer" emmer --features test
# The versions that the workspace is tested with, and what it has compiled.
cp "$root/Cargo.lock" .
# The same profile, too: without it nothing of that could be used here.
sed -n '/^\[profile\.dev\]/,/^# Names of functions/p' "$root/Cargo.toml" >> Cargo.toml
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}

# A block of code belongs to the file that the text before it names.
mkdir -p src/bin tests
awk '
    /^```rust/ && file != "" { out = file; file = ""; next }
    /^```/ { out = ""; next }
    out != "" { if ($0 !~ /^# /) print > out; next }
    match($0, /`(src|tests)\/[a-z\/]+\.rs`/) { file = substr($0, RSTART + 1, RLENGTH - 2) }
' "$page"
for file in src/lib.rs src/bin/silo.rs src/bin/visit.rs tests/visits.rs; do
    [ -s "$file" ] || { echo "the page has no $file" >&2; exit 1; }
done

# The programs and the test at once: one by one they would compile tokio and Emmer twice.
cargo test --quiet --no-run
bin=$CARGO_TARGET_DIR/debug
serve() {
    "$bin/silo" > silo.log 2>&1 &
    silo=$!
    for _ in $(seq 200); do
        grep -q '^the silo is ' silo.log && return
        kill -0 "$silo" 2>/dev/null || break
        sleep 0.1
    done
    cat silo.log >&2
    exit 1
}

serve
{ "$bin/visit"; "$bin/visit"; } > said
kill -9 "$silo"
wait "$silo" 2>/dev/null || true
serve
"$bin/visit" >> said
grep '^ann: visit ' "$page" > expected
diff expected said
cargo test --quiet --test visits
echo "the page holds: $(wc -l < said) visits, and its test"
