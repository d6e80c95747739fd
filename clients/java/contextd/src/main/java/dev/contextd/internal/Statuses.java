package dev.contextd.internal;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.QuotaFailure;
import com.google.rpc.RequestInfo;
import com.google.rpc.ResourceInfo;
import com.google.rpc.RetryInfo;
import dev.contextd.Problem;
import dev.contextd.Problem.FieldViolation;
import dev.contextd.Problem.QuotaViolation;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** Reads what a gRPC status says. */
public final class Statuses {
  /** Errors in a row that only a broken connection explains, before they are believed. */
  static final int ODD_ERRORS = 20;

  private static final String DOMAIN = "contextd.dev";

  private String reason = "";
  private Map<String, String> metadata = Map.of();
  private final List<FieldViolation> fields = new ArrayList<>();
  private final List<QuotaViolation> quotas = new ArrayList<>();
  private Optional<Duration> retryAfter = Optional.empty();
  private String resourceType = "";
  private String resourceName = "";
  private String requestId = "";

  private Statuses() {}

  /** What a call that did not end OK says of it. */
  public static Problem problemOf(Throwable error) {
    Status status = Status.fromThrowable(error);
    Statuses found = new Statuses();
    com.google.rpc.Status details = StatusProto.fromThrowable(error);
    if (details != null) {
      for (Any packed : details.getDetailsList()) {
        try {
          found.read(packed);
        } catch (InvalidProtocolBufferException unreadable) {
          // The code says enough.
        }
      }
    }
    return found.problem(status);
  }

  /** Whether the same request may succeed a moment later. */
  public static boolean mayPass(Problem problem) {
    boolean passing =
        problem.code() == Status.Code.UNAVAILABLE
            || problem.code() == Status.Code.DEADLINE_EXCEEDED;
    return passing && !problem.reason().equals("PROVIDER_FAILED");
  }

  /** Whether the connection failed, rather than the request: nothing that contextd said. */
  public static boolean isBrokenTransport(Problem problem) {
    return problem.reason().isEmpty()
        && switch (problem.code()) {
          case INTERNAL, UNKNOWN, CANCELLED -> true;
          default -> false;
        };
  }

  private Problem problem(Status status) {
    String message = status.getDescription();
    if (message == null) {
      message = status.getCause() == null ? "" : String.valueOf(status.getCause().getMessage());
    }
    return new Problem(
        status.getCode(),
        message,
        reason,
        metadata,
        List.copyOf(fields),
        List.copyOf(quotas),
        retryAfter,
        resourceType,
        resourceName,
        requestId);
  }

  private void read(Any packed) throws InvalidProtocolBufferException {
    if (packed.is(ErrorInfo.class)) {
      ErrorInfo info = packed.unpack(ErrorInfo.class);
      if (info.getDomain().equals(DOMAIN)) {
        reason = info.getReason();
        metadata = Map.copyOf(info.getMetadataMap());
      }
    } else if (packed.is(BadRequest.class)) {
      for (BadRequest.FieldViolation each :
          packed.unpack(BadRequest.class).getFieldViolationsList()) {
        fields.add(new FieldViolation(each.getField(), each.getReason(), each.getDescription()));
      }
    } else if (packed.is(QuotaFailure.class)) {
      for (QuotaFailure.Violation each : packed.unpack(QuotaFailure.class).getViolationsList()) {
        quotas.add(new QuotaViolation(each.getSubject(), each.getDescription()));
      }
    } else if (packed.is(RetryInfo.class)) {
      retryAfter = Optional.of(Times.duration(packed.unpack(RetryInfo.class).getRetryDelay()));
    } else if (packed.is(ResourceInfo.class)) {
      ResourceInfo info = packed.unpack(ResourceInfo.class);
      resourceType = info.getResourceType();
      resourceName = info.getResourceName();
    } else if (packed.is(RequestInfo.class)) {
      requestId = packed.unpack(RequestInfo.class).getRequestId();
    }
  }
}
