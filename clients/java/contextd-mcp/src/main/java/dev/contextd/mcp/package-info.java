/** The tools of MCP servers as tools of contextd's client. */
package dev.contextd.mcp;
