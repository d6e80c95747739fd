package dev.contextd;

/** Whatever this package throws on its own account. */
public class ContextdException extends RuntimeException {
  /** With a sentence. */
  public ContextdException(String message) {
    super(message);
  }

  /** With a sentence and what it comes from. */
  public ContextdException(String message, Throwable cause) {
    super(message, cause);
  }
}
