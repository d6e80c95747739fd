#!/usr/bin/env bash
# Generates src/gen from proto/. With --check: fails if what is there differs from what would be generated.
# The generators are pinned in package.json and package-lock.json.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
[ -d node_modules/ts-proto ] || npm install --silent --no-save --no-audit --no-fund

rm -rf build/generated
node_modules/.bin/buf generate ../../proto --template buf.gen.yaml --include-imports --include-wkt
node scripts/tidy-generated.mjs build/generated

if [ "${1:-}" = "--check" ]; then
    diff -r build/generated src/gen || { echo "clients/typescript/src/gen differs from proto/: run clients/typescript/generate.sh" >&2; exit 1; }
else
    rm -rf src/gen
    mv build/generated src/gen
fi
