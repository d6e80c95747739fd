package dev.contextd.internal;

import com.google.protobuf.ByteString;
import dev.contextd.v1.BlobHeader;
import dev.contextd.v1.GetBlobRequest;
import dev.contextd.v1.PutBlobRequest;
import dev.contextd.v1.PutBlobResponse;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientResponseObserver;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/** Uploads and downloads in pieces. */
public final class Blobs {
  private static final int CHUNK_BYTES = 256 * 1024;

  private Blobs() {}

  /** Uploads, as fast as the server takes it; gives the blob's id. */
  public static String put(Transport.Stubs stubs, String mediaType, byte[] data) {
    Upload upload = new Upload(mediaType, data);
    stubs.uploads().putBlob(upload);
    try {
      return upload.answer.join().getBlob().getBlobId();
    } catch (CompletionException error) {
      if (error.getCause() instanceof StatusRuntimeException refused) {
        throw refused;
      }
      throw Status.UNKNOWN.withCause(error.getCause()).asRuntimeException();
    }
  }

  /** Downloads. */
  public static ByteString get(Transport.Stubs stubs, String blobId) {
    ByteString found = ByteString.EMPTY;
    var pieces = stubs.blobs().getBlob(GetBlobRequest.newBuilder().setBlobId(blobId).build());
    while (pieces.hasNext()) {
      found = found.concat(pieces.next().getChunk());
    }
    return found;
  }

  private static final class Upload
      implements ClientResponseObserver<PutBlobRequest, PutBlobResponse> {
    final CompletableFuture<PutBlobResponse> answer = new CompletableFuture<>();
    private final String mediaType;
    private final byte[] data;
    private boolean begun;
    private int sent;

    Upload(String mediaType, byte[] data) {
      this.mediaType = mediaType;
      this.data = data;
    }

    @Override
    public void beforeStart(ClientCallStreamObserver<PutBlobRequest> call) {
      call.setOnReadyHandler(() -> send(call));
    }

    private void send(ClientCallStreamObserver<PutBlobRequest> call) {
      while (call.isReady() && sent <= data.length) {
        if (!begun) {
          begun = true;
          call.onNext(header());
        } else if (sent < data.length) {
          int length = Math.min(CHUNK_BYTES, data.length - sent);
          call.onNext(
              PutBlobRequest.newBuilder()
                  .setChunk(ByteString.copyFrom(data, sent, length))
                  .build());
          sent += length;
        } else {
          sent++; // complete
          call.onCompleted();
        }
      }
    }

    private PutBlobRequest header() {
      BlobHeader.Builder header =
          BlobHeader.newBuilder()
              .setMediaType(mediaType)
              .setSizeBytes(data.length)
              .setSha256(sha256());
      return PutBlobRequest.newBuilder().setHeader(header).build();
    }

    private String sha256() {
      try {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
      } catch (NoSuchAlgorithmException error) {
        throw new IllegalStateException("every Java has SHA-256", error);
      }
    }

    @Override
    public void onNext(PutBlobResponse response) {
      answer.complete(response);
    }

    @Override
    public void onError(Throwable error) {
      answer.completeExceptionally(
          Status.fromThrowable(error).asRuntimeException(Status.trailersFromThrowable(error)));
    }

    @Override
    public void onCompleted() {
      answer.completeExceptionally(
          Status.UNAVAILABLE.withDescription("no answer to the upload").asRuntimeException());
    }
  }
}
