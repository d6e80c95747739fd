package dev.contextd;

/** Thrown by a tool, it tells the model what went wrong, in these words alone. */
public class ToolException extends RuntimeException {
  /** What the model is told. */
  public ToolException(String message) {
    super(message);
  }
}
