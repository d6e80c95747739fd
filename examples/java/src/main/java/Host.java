import dev.contextd.Contextd;
import dev.contextd.Event;
import dev.contextd.Run;
import dev.contextd.Session;
import dev.contextd.Tool;

/** An agent with two tools that survives restarts of the server, and of itself: it goes on with the turn it left. */
public final class Host {
  record City(String city) {}

  static final Tool WEATHER =
      Tool.of("get_weather", "Current weather of a city.", City.class, at -> "18 °C and sunny in " + at.city());
  static final Tool TIME = Tool.of("get_time", "Local time in a city.", City.class, at -> "14:05 in " + at.city());

  /** Prints a turn as it goes on. What is said meanwhile is taken at its next step. */
  static void show(Session session, Run run, String meanwhile) {
    for (Event event : run) {
      if (event instanceof Event.TextDelta delta) {
        System.out.print(delta.text());
      } else if (event instanceof Event.ToolCallRequested call) {
        System.out.println("\n-> " + call.name() + " " + call.argumentsJson());
        if (call.name().equals("get_weather") && !meanwhile.isEmpty()) {
          session.send(meanwhile);
        }
      } else if (event instanceof Event.TextReset) { // the model was called again, and answers otherwise
        System.out.println("\n[again]");
      }
    }
    System.out.println("\n" + run.result().usage().getTotalTokens() + " tokens");
  }

  public static void main(String[] arguments) {
    try (Contextd client = Contextd.connect()) {
      Session session = client.session("trip-2", options -> options.tools(WEATHER, TIME));
      session.resume().ifPresent(left -> show(session, left, ""));
      show(session, session.run(arguments[0]), arguments.length > 1 ? arguments[1] : "");
    }
  }
}
