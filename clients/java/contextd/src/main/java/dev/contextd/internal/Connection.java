package dev.contextd.internal;

import dev.contextd.Problem;
import dev.contextd.v1.ExecuteTurnResponse;
import dev.contextd.v1.TurnServiceGrpc;
import dev.contextd.v1.WatchEventsResponse;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.function.Function;

/** One connection's stream, which reports what it brings. */
final class Connection {
  /** Events that wait for a caller that is slow; the server is told not to send more. */
  private static final int WAITING_EVENTS = 256;

  private final int number;
  private final EventStream stream;
  private final BlockingQueue<Report> reports;
  private final Logs.Outage outage;
  private final Duration reconnectFor;
  private volatile boolean closed;
  private volatile ClientCallStreamObserver<?> call;

  /** Something that happened, to be taken up by the thread that reads the events. */
  @FunctionalInterface
  interface Report {
    /** Takes it up. */
    List<Action> at(long now);
  }

  private Connection(int number, EventStream stream, BlockingQueue<Report> reports, Host host) {
    this.number = number;
    this.stream = stream;
    this.reports = reports;
    this.outage = host.transport().outage();
    this.reconnectFor = host.reconnectFor();
  }

  /** Opens it. */
  static Connection open(
      Action.Open action, EventStream stream, Host host, BlockingQueue<Report> reports) {
    Connection made = new Connection(action.connection(), stream, reports, host);
    TurnServiceGrpc.TurnServiceStub stub = host.transport().streams();
    if (action.request() instanceof StreamRequest.Execute execute) {
      stub.executeTurn(execute.request(), made.observer(ExecuteTurnResponse::getEvent));
    } else {
      stub.watchEvents(
          ((StreamRequest.Watch) action.request()).request(),
          made.observer(WatchEventsResponse::getEvent));
    }
    return made;
  }

  /** Gives it up. */
  void close() {
    closed = true;
    ClientCallStreamObserver<?> running = call;
    if (running != null) {
      running.cancel("the stream is not needed any more", null);
    }
  }

  private <Q, R> ClientResponseObserver<Q, R> observer(Function<R, dev.contextd.v1.Event> event) {
    return new ClientResponseObserver<>() {
      @Override
      public void beforeStart(ClientCallStreamObserver<Q> request) {
        call = request;
        request.disableAutoRequestWithInitial(WAITING_EVENTS);
      }

      @Override
      public void onNext(R response) {
        outage.answered();
        dev.contextd.v1.Event found = event.apply(response);
        report(
            now -> {
              call.request(1);
              return stream.onEvent(number, found, now);
            });
      }

      @Override
      public void onError(Throwable error) {
        Problem problem = Statuses.problemOf(error);
        if (!closed) {
          outage.failed(problem, reconnectFor);
        }
        report(now -> stream.onEnd(number, Optional.of(problem), now));
      }

      @Override
      public void onCompleted() {
        report(now -> stream.onEnd(number, Optional.empty(), now));
      }
    };
  }

  private void report(Report report) {
    if (!closed) {
      reports.add(report);
    }
  }
}
