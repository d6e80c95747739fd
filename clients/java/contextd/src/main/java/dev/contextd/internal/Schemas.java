package dev.contextd.internal;

import com.fasterxml.classmate.ResolvedType;
import com.github.victools.jsonschema.generator.FieldScope;
import com.github.victools.jsonschema.generator.Option;
import com.github.victools.jsonschema.generator.OptionPreset;
import com.github.victools.jsonschema.generator.SchemaGenerator;
import com.github.victools.jsonschema.generator.SchemaGeneratorConfigBuilder;
import com.github.victools.jsonschema.generator.SchemaVersion;
import com.github.victools.jsonschema.generator.impl.PropertySortUtils;
import com.github.victools.jsonschema.module.jackson.JacksonOption;
import com.github.victools.jsonschema.module.jackson.JacksonSchemaModule;
import java.lang.annotation.Annotation;
import java.util.Arrays;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.stream.Stream;
import tools.jackson.databind.JsonNode;

/** The schema of a tool's arguments, from the record that holds them. */
public final class Schemas {
  private static final Set<Class<?>> OPTIONAL =
      Set.of(Optional.class, OptionalInt.class, OptionalLong.class, OptionalDouble.class);
  private static final int DEEPEST = 64;

  private Schemas() {}

  /** Arguments of one type. */
  public static final class Arguments<A> {
    private final Class<A> type;
    private final JsonNode schema;

    private Arguments(Class<A> type, JsonNode schema) {
      this.type = type;
      this.schema = schema;
    }

    /** The schema. */
    public String json() {
      return schema.toString();
    }

    /** Reads arguments that the model wrote. Throws what is wrong with them. */
    public A read(String text) {
      JsonNode given = Json.MAPPER.readTree(text.isBlank() ? "{}" : text);
      if (!given.isObject()) {
        throw new IllegalArgumentException("the arguments are not a JSON object");
      }
      requirePresent(schema, given, "", 0);
      return Json.MAPPER.treeToValue(given, type);
    }
  }

  /** The arguments of a record. */
  public static <A extends Record> Arguments<A> of(Class<A> type) {
    SchemaGeneratorConfigBuilder config =
        new SchemaGeneratorConfigBuilder(SchemaVersion.DRAFT_2020_12, OptionPreset.PLAIN_JSON)
            .with(
                new JacksonSchemaModule(
                    JacksonOption.FLATTENED_ENUMS_FROM_JSONPROPERTY,
                    JacksonOption.RESPECT_JSONPROPERTY_ORDER))
            .with(Option.FLATTENED_OPTIONALS, Option.FORBIDDEN_ADDITIONAL_PROPERTIES_BY_DEFAULT)
            .with(Option.PLAIN_DEFINITION_KEYS, Option.MAP_VALUES_AS_ADDITIONAL_PROPERTIES)
            .without(Option.SCHEMA_VERSION_INDICATOR);
    config.forFields().withRequiredCheck(Schemas::isRequired).withNullableCheck(field -> false);
    config
        .forTypesInGeneral()
        .withPropertySorter(PropertySortUtils.SORT_PROPERTIES_FIELDS_BEFORE_METHODS);
    return new Arguments<>(type, new SchemaGenerator(config.build()).generateSchema(type));
  }

  private static boolean isRequired(FieldScope field) {
    ResolvedType type = field.getDeclaredType();
    return !OPTIONAL.contains(type.getErasedType()) && !isNullable(field);
  }

  private static boolean isNullable(FieldScope field) {
    Stream<Annotation> annotations =
        Stream.concat(
            Arrays.stream(field.getRawMember().getAnnotations()),
            Arrays.stream(field.getRawMember().getAnnotatedType().getAnnotations()));
    return annotations.anyMatch(each -> each.annotationType().getSimpleName().equals("Nullable"));
  }

  /** Jackson leaves what is missing at null; the model is to be told instead. */
  private static void requirePresent(JsonNode schema, JsonNode given, String path, int depth) {
    if (depth > DEEPEST) {
      throw new IllegalArgumentException("the arguments are nested too deep");
    }
    for (JsonNode name : schema.path("required")) {
      if (given.isObject()
          && (!given.has(name.asString()) || given.get(name.asString()).isNull())) {
        throw new IllegalArgumentException(
            "the argument " + path + name.asString() + " is missing");
      }
    }
    if (given.isObject()) {
      schema
          .path("properties")
          .forEachEntry(
              (name, property) ->
                  requirePresent(property, given.path(name), path + name + ".", depth + 1));
    } else if (given.isArray()) {
      given.forEach(item -> requirePresent(schema.path("items"), item, path, depth + 1));
    }
  }
}
