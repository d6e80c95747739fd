// Parses the SQL on standard input with PostgreSQL's parser: exit code 0, or 1 with what is wrong.
const { readFileSync } = require("node:fs");

const { parse } = require(process.argv[2]);
parse(readFileSync(0, "utf8")).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
