package dev.contextd;

/** The URL or another setting cannot be used; the message says which, and what is wrong. */
public final class ConfigurationException extends ContextdException {
  /** With a sentence. */
  public ConfigurationException(String message) {
    super(message);
  }

  /** With a sentence and what it comes from. */
  public ConfigurationException(String message, Throwable cause) {
    super(message, cause);
  }
}
