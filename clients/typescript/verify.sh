#!/usr/bin/env bash
# Everything that must hold of this package: CONTEXTD_BIN=.../contextd ./verify.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
: "${CONTEXTD_BIN:?set it to a contextd binary}"
npm install --silent --no-save --no-audit --no-fund
./generate.sh --check
node scripts/build.mjs
npx biome check --error-on-warnings
npx publint --strict
npx attw --pack . --profile node16
node_modules/.bin/tsc -p tsconfig.test.json
node --test --test-concurrency=2 build/test/*.test.js
