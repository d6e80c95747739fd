package dev.contextd.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.annotation.JsonPropertyDescription;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;

/** Schemas of records, and arguments that fit or do not. */
class SchemasTest {
  enum Room {
    SINGLE,
    DOUBLE
  }

  record Guest(String name, Optional<Integer> age) {}

  record Booking(
      @JsonPropertyDescription("Its name") String hotel,
      int nights,
      Room room,
      List<Guest> guests) {}

  private static final Schemas.Arguments<Booking> BOOKING = Schemas.of(Booking.class);

  @Test
  void aRecordBecomesASchema() {
    String schema =
        """
        {"type":"object","properties":{"hotel":{"type":"string","description":"Its name"},
        "nights":{"type":"integer"},"room":{"type":"string","enum":["SINGLE","DOUBLE"]},
        "guests":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},
        "age":{"type":["integer","null"]}},"required":["name"],"additionalProperties":false}}},
        "required":["hotel","nights","room","guests"],"additionalProperties":false}""";
    assertEquals(Json.MAPPER.readTree(schema), Json.MAPPER.readTree(BOOKING.json()));
    assertTrue(
        BOOKING.json().indexOf("hotel") < BOOKING.json().indexOf("guests"),
        "in the record's order");
  }

  @Test
  void argumentsBecomeTheRecord() {
    Booking booking =
        BOOKING.read(
            """
            {"hotel": "Ritz", "nights": 2, "room": "DOUBLE", "guests": [{"name": "Ada"}, {"name": "Bo", "age": 3}]}
            """);
    List<Guest> guests =
        List.of(new Guest("Ada", Optional.empty()), new Guest("Bo", Optional.of(3)));
    assertEquals(new Booking("Ritz", 2, Room.DOUBLE, guests), booking);
  }

  @Test
  void whatIsMissingIsNamed() {
    String arguments =
        "{\"hotel\": \"Ritz\", \"nights\": 2, \"room\": \"DOUBLE\", \"guests\": [{\"age\": 3}]}";
    var error = assertThrows(IllegalArgumentException.class, () -> BOOKING.read(arguments));
    assertEquals("the argument guests.name is missing", error.getMessage());
  }

  @Test
  void whatDoesNotFitIsRefused() {
    String rest = "\"hotel\": \"Ritz\", \"room\": \"DOUBLE\", \"guests\": []}";
    assertThrows(RuntimeException.class, () -> BOOKING.read("{\"nights\": \"many\", " + rest));
    assertThrows(
        RuntimeException.class, () -> BOOKING.read("{\"nights\": 1, \"extra\": 1, " + rest));
    assertThrows(RuntimeException.class, () -> BOOKING.read("[]"));
    assertThrows(RuntimeException.class, () -> BOOKING.read("{"));
  }
}
