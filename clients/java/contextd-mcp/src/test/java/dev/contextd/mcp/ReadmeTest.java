package dev.contextd.mcp;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.StringWriter;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * The blocks of README.md compile against both artifacts. The first is a program, which {@code
 * client test} runs as well; the others are statements, and these are what they are given.
 */
class ReadmeTest {
  private static final Pattern BLOCK =
      Pattern.compile("^```java\n(.*?)^```", Pattern.MULTILINE | Pattern.DOTALL);

  private static final String STATEMENTS =
      """
      import com.fasterxml.jackson.annotation.JsonPropertyDescription;
      import dev.contextd.*;
      import dev.contextd.mcp.*;
      import dev.contextd.v1.CancelMode;
      import dev.contextd.v1.Delivery;
      import dev.contextd.v1.ErrorReason;
      import dev.contextd.v1.PromptFormat;
      import java.net.URI;
      import java.time.Duration;
      import java.util.Map;
      import java.util.Optional;

      abstract class Block%d {
        Contextd client;
        Session session;
        Tool weather, book;
        String token;

        abstract String post(String json);

        void block() throws Exception {
      %s
        }
      }
      """;

  /** The blocks as classes, by their names. */
  private static Map<String, String> classes() throws IOException {
    Map<String, String> classes = new TreeMap<>();
    for (MatchResult block :
        BLOCK.matcher(Files.readString(Path.of("../README.md"))).results().toList()) {
      int at = classes.size();
      String text = block.group(1);
      classes.put(at == 0 ? "Trip" : "Block" + at, at == 0 ? text : STATEMENTS.formatted(at, text));
    }
    return classes;
  }

  private static JavaFileObject source(String name, String text) {
    URI uri = URI.create("string:///" + name + ".java");
    return new SimpleJavaFileObject(uri, JavaFileObject.Kind.SOURCE) {
      @Override
      public CharSequence getCharContent(boolean ignoreEncodingErrors) {
        return text;
      }
    };
  }

  @Test
  void everyBlockCompiles(@TempDir Path folder) throws IOException {
    List<JavaFileObject> sources = new ArrayList<>();
    classes().forEach((name, text) -> sources.add(source(name, text)));
    assertTrue(sources.size() > 1);
    List<String> options =
        List.of(
            "-proc:none", "-cp", System.getProperty("java.class.path"), "-d", folder.toString());
    StringWriter said = new StringWriter();
    JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    boolean compiled = compiler.getTask(said, null, null, options, null, sources).call();
    assertTrue(compiled, said::toString);
  }
}
