// Parses the SQL on standard input with PostgreSQL's parser. Exits with code 0, or with code 1 and an error message.
const { readFileSync } = require("node:fs");

const { parse } = require(process.argv[2]);
parse(readFileSync(0, "utf8")).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
