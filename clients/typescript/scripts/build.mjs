// Builds dist/esm and dist/cjs, each with its types.
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
rmSync("dist", { recursive: true, force: true });
for (const [format, type] of [
  ["esm", "module"],
  ["cjs", "commonjs"],
]) {
  mkdirSync(`dist/${format}`, { recursive: true });
  writeFileSync(`dist/${format}/package.json`, `{ "type": "${type}" }\n`);
}
execFileSync("node_modules/.bin/tsc", ["-p", "."], { stdio: "inherit" });
// The sources are of the package, whose type is `module`: a copy whose type is `commonjs` is compiled for `require`.
execFileSync("node_modules/.bin/tsc", ["-p", "tsconfig.cjs.json"], { stdio: "inherit" });
