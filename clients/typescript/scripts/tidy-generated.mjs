// Makes what ts-proto wrote a bit more like TypeScript: enums read "completed" in place of "TURN_STATE_COMPLETED",
// descriptors that only generators need are left out, and one file exports everything. Beside it goes what all
// clients share of their connections.
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const root = process.argv[2];
const services = join(root, "contextd/v1");
rmSync(join(root, "google/protobuf/descriptor.ts"), { force: true });

for (const file of readdirSync(services)) {
  const path = join(services, file);
  const text = readFileSync(path, "utf8")
    // The values of an enum stand in one place; everything else refers to them.
    .replace(/^( {2}([A-Z][A-Z0-9_]*): )"[A-Z0-9_]+",$/gm, (_, start, name) => `${start}"${name.toLowerCase()}",`)
    // Names in JSON are not read.
    .replace(/^ +case "[A-Z0-9_]+":\n/gm, "")
    // Options of methods that only the server reads.
    .replace(/,? ?_unknownFields: \{ 400560: \[new Uint8Array\(\[\d\]\) as Uint8Array\] \}/g, "");
  writeFileSync(path, text);
}

const names = readdirSync(services)
  .map((file) => file.replace(/\.ts$/, ".js"))
  .sort();
const lines = names.map((name) => `export * from "./contextd/v1/${name}";`);
writeFileSync(
  join(root, "index.ts"),
  `${lines.join("\n")}\nexport { Duration } from "./google/protobuf/duration.js";\n`,
);

// What the clients of all languages share.
const shared = readFileSync(new URL("../../service_config.json", import.meta.url), "utf8").trimEnd();
writeFileSync(
  join(root, "service-config.ts"),
  `/** How every client connects: load balancing, repetition, keepalive. */\nexport const shared = ${shared};\n`,
);
