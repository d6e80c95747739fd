// Parses diagrams: each line of standard input is a diagram as a JSON string. The response line is the error message, or "".
const fs = require("node:fs");
const readline = require("node:readline");
const vm = require("node:vm");

// The minimal browser API that mermaid needs for parsing. Nothing is drawn.
const element = () => ({ style: {}, setAttribute() {}, appendChild() {}, addEventListener() {} });
globalThis.window = globalThis;
globalThis.Element = class {};
globalThis.Node = class {};
globalThis.addEventListener = () => {};
globalThis.document = {
  nodeType: 9,
  currentScript: null,
  implementation: {},
  addEventListener() {},
  createElement: element,
  createElementNS: element,
  querySelector: () => null,
  querySelectorAll: () => [],
  body: element(),
  documentElement: element(),
};
vm.runInThisContext(fs.readFileSync(process.argv[2], "utf8"));
const { mermaid } = globalThis;
mermaid.initialize({ startOnLoad: false });

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let problem = "";
    try {
      await mermaid.parse(JSON.parse(line));
    } catch (error) {
      problem = error.message || "not a diagram";
    }
    process.stdout.write(`${JSON.stringify(problem)}\n`);
  }
})();
