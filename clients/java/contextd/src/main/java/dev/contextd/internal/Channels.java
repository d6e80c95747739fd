package dev.contextd.internal;

import dev.contextd.ConfigurationException;
import dev.contextd.Contextd;
import io.grpc.ChannelCredentials;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.TlsChannelCredentials;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.ChannelOption;
import io.grpc.stub.MetadataUtils;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Makes channels as {@code service_config.json} says, which the clients of all languages share. */
final class Channels {
  private static final int MAX_MESSAGE_BYTES = 64 * 1024 * 1024;
  private static final Map<String, Object> SHARED = shared();

  private Channels() {}

  /** A channel for each host. */
  static List<ManagedChannel> of(Settings settings) {
    ChannelCredentials credentials = credentials(settings);
    return settings.targets().stream()
        .map(target -> channel(target, credentials, settings))
        .toList();
  }

  private static ManagedChannel channel(
      String target, ChannelCredentials credentials, Settings settings) {
    Map<?, ?> keepalive = (Map<?, ?>) SHARED.get("keepalive");
    Map<?, ?> reconnect = (Map<?, ?>) SHARED.get("reconnect");
    NettyChannelBuilder builder =
        NettyChannelBuilder.forTarget(target, credentials)
            .defaultServiceConfig(serviceConfig())
            .disableServiceConfigLookUp()
            .enableRetry()
            .keepAliveTime(number(keepalive, "timeMs"), TimeUnit.MILLISECONDS)
            .keepAliveTimeout(number(keepalive, "timeoutMs"), TimeUnit.MILLISECONDS)
            .withOption(
                ChannelOption.CONNECT_TIMEOUT_MILLIS, (int) number(reconnect, "connectTimeoutMs"))
            .maxInboundMessageSize(MAX_MESSAGE_BYTES)
            .userAgent("contextd-java/" + version());
    settings
        .apiKey()
        .ifPresent(
            key -> {
              Metadata headers = new Metadata();
              headers.put(
                  Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER),
                  "Bearer " + key);
              builder.intercept(MetadataUtils.newAttachHeadersInterceptor(headers));
            });
    return builder.build();
  }

  private static ChannelCredentials credentials(Settings settings) {
    if (!settings.tls()) {
      return InsecureChannelCredentials.create();
    }
    TlsChannelCredentials.Builder tls = TlsChannelCredentials.newBuilder();
    try {
      if (settings.caFile().isPresent()) {
        tls.trustManager(settings.caFile().get().toFile());
      }
      if (settings.certFile().isPresent() && settings.keyFile().isPresent()) {
        tls.keyManager(settings.certFile().get().toFile(), settings.keyFile().get().toFile());
      }
    } catch (IOException error) {
      throw new ConfigurationException(
          "a certificate cannot be read: " + error.getMessage(), error);
    }
    return tls.build();
  }

  /** {@code reconnect} has no counterpart in grpc-java, so {@link Transport} shortens its waits. */
  private static Map<String, ?> serviceConfig() {
    Map<String, Object> found = new LinkedHashMap<>();
    ((Map<?, ?>) SHARED.get("serviceConfig"))
        .forEach((key, value) -> found.put(String.valueOf(key), value));
    return found;
  }

  private static long number(Map<?, ?> of, String name) {
    return ((Number) of.get(name)).longValue();
  }

  private static Map<String, Object> shared() {
    try (InputStream found = Contextd.class.getResourceAsStream("service_config.json")) {
      return asObject(Json.MAPPER.readTree(found.readAllBytes()));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static Map<String, Object> asObject(tools.jackson.databind.JsonNode node) {
    Map<String, Object> made = new LinkedHashMap<>();
    node.forEachEntry((name, value) -> made.put(name, asPlain(value)));
    return made;
  }

  /** As grpc-java takes a service config: all numbers are doubles. */
  private static Object asPlain(tools.jackson.databind.JsonNode node) {
    if (node.isObject()) {
      return asObject(node);
    }
    if (node.isArray()) {
      return node.valueStream().map(Channels::asPlain).toList();
    }
    return node.isNumber()
        ? (Object) node.asDouble()
        : node.isBoolean() ? (Object) node.asBoolean() : node.asString();
  }

  private static String version() {
    String version = Contextd.class.getPackage().getImplementationVersion();
    return version == null ? "dev" : version;
  }
}
