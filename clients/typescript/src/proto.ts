/** The messages and services of the API, as generated from its protos. */
export * from "./gen/index.js";
