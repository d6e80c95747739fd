package dev.contextd;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** A proxy that cuts every connection again and again. */
final class Cutter implements AutoCloseable {
  private final int target;
  private final ServerSocket listener;
  private final Set<Socket> sockets = ConcurrentHashMap.newKeySet();
  private final CountDownLatch stopped = new CountDownLatch(1);

  Cutter(int target, Duration every) {
    this.target = target;
    try {
      listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    start(this::accept);
    start(() -> cut(every));
  }

  String url() {
    return "http://127.0.0.1:" + listener.getLocalPort();
  }

  private static void start(Runnable work) {
    Thread thread = new Thread(work, "cutter");
    thread.setDaemon(true);
    thread.start();
  }

  private void accept() {
    while (!listener.isClosed()) {
      try {
        Socket client = listener.accept();
        Socket server = new Socket(InetAddress.getLoopbackAddress(), target);
        sockets.addAll(List.of(client, server));
        start(() -> pump(client, server));
        start(() -> pump(server, client));
      } catch (IOException gone) {
        // The server is away, or this is closed
      }
    }
  }

  private void pump(Socket source, Socket sink) {
    try {
      source.getInputStream().transferTo(sink.getOutputStream());
    } catch (IOException cut) {
      // as it should be
    } finally {
      drop(source);
      drop(sink);
    }
  }

  private void drop(Socket socket) {
    sockets.remove(socket);
    try {
      socket.close();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private void cut(Duration every) {
    try {
      while (!stopped.await(every.toMillis(), TimeUnit.MILLISECONDS)) {
        List.copyOf(sockets).forEach(this::drop);
      }
    } catch (InterruptedException error) {
      throw new IllegalStateException(error);
    }
  }

  @Override
  public void close() {
    stopped.countDown();
    try {
      listener.close();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    List.copyOf(sockets).forEach(this::drop);
  }
}
