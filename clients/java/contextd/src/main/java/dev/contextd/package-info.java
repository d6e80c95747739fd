/**
 * A client of contextd: agent turns that outlive connections, hosts and servers.
 *
 * <p>{@link dev.contextd.Contextd} connects, {@link dev.contextd.Session} is a conversation, {@link
 * dev.contextd.Run} is a turn that runs, with {@link dev.contextd.Tool}s of this process.
 */
package dev.contextd;
