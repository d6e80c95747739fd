package dev.contextd;

import com.google.protobuf.ByteString;
import dev.contextd.v1.InputMessage;
import dev.contextd.v1.Media;
import dev.contextd.v1.Part;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/** Makes what goes into messages. */
public final class Content {
  private Content() {}

  /** What a user says. */
  public static InputMessage input(String text) {
    return input(text(text));
  }

  /** What a user says, in parts. */
  public static InputMessage input(Part... parts) {
    return InputMessage.newBuilder().addAllParts(List.of(parts)).build();
  }

  /** A text. */
  public static Part text(String text) {
    return Part.newBuilder().setText(text).build();
  }

  /**
   * An image, document, sound or video of at most 3 MiB; larger ones go through {@link
   * Contextd#putBlob}.
   */
  public static Part media(String mediaType, byte[] data) {
    return part(Media.newBuilder().setMediaType(mediaType).setData(ByteString.copyFrom(data)));
  }

  /** A file of at most 3 MiB. */
  public static Part file(Path path) {
    try {
      String guessed = Files.probeContentType(path);
      return part(
          Media.newBuilder()
              .setMediaType(guessed == null ? "application/octet-stream" : guessed)
              .setData(ByteString.copyFrom(Files.readAllBytes(path)))
              .setFilename(String.valueOf(path.getFileName())));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** A stored blob. */
  public static Part blob(String mediaType, String blobId) {
    return part(Media.newBuilder().setMediaType(mediaType).setBlobId(blobId));
  }

  /** An address that the provider fetches. */
  public static Part url(String mediaType, String url) {
    return part(Media.newBuilder().setMediaType(mediaType).setUrl(url));
  }

  private static Part part(Media.Builder media) {
    return Part.newBuilder().setMedia(media).build();
  }
}
