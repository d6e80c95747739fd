package dev.contextd.internal;

import com.google.protobuf.ProtocolMessageEnum;

/** Names of enum values as people write them. */
public final class Enums {
  private Enums() {}

  /**
   * The name without the prefix of its enum: {@code STOP}. The number of a value that is newer than
   * this client.
   */
  public static String name(ProtocolMessageEnum value, int number) {
    if (((Enum<?>) value).name().equals("UNRECOGNIZED")) {
      return Integer.toString(number);
    }
    String prefix =
        value
                .getDescriptorForType()
                .getName()
                .replaceAll("([a-z])([A-Z])", "$1_$2")
                .toUpperCase(java.util.Locale.ROOT)
            + "_";
    String name = ((Enum<?>) value).name();
    return name.startsWith(prefix) ? name.substring(prefix.length()) : name;
  }
}
