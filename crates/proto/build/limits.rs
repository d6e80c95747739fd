//! Writes the checks of requests from the option `limit` of their fields: an implementation of `Limited` for each message
//! that a request can contain, and a constant for each limited text, size or number. A field whose option does not fit its
//! type, or that could be of any size, fails the build.
#![expect(clippy::wildcard_enum_match_arm, reason = "the enums are of protobuf, most of whose types no request uses")]

use std::{collections::BTreeSet, fmt::Write as _};

use heck::{ToShoutySnakeCase as _, ToSnakeCase as _, ToUpperCamelCase as _};
use protox::prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor, Value,
};

const PACKAGE: &str = "contextd.v1";

/// The Rust source of all checks.
pub(crate) fn generate(pool: &DescriptorPool) -> Result<String, String> {
    let option = pool.get_extension_by_name("contextd.v1.limit").ok_or("proto/ has no option contextd.v1.limit")?;
    let mut todo: Vec<_> = pool
        .services()
        .filter(|service| service.package_name() == PACKAGE)
        .flat_map(|service| service.methods().map(|method| method.input()).collect::<Vec<_>>())
        .collect();
    let mut done = BTreeSet::new();
    let mut source = String::new();
    while let Some(message) = todo.pop() {
        if !done.insert(message.full_name().to_owned()) {
            continue;
        }
        let fields = message.fields().map(|field| Field::new(field, &option)).collect::<Result<Vec<_>, _>>()?;
        todo.extend(fields.iter().filter_map(Field::nested));
        source += &implementation(&message, &fields);
    }
    Ok(source)
}

/// A field of a request, and its limit.
struct Field {
    descriptor: FieldDescriptor,
    limit: Limit,
}

/// The option `limit`, as text of Rust.
#[derive(Default)]
struct Limit {
    required: bool,
    output_only: bool,
    refused: bool,
    request_size: bool,
    conditional: bool,
    characters: Option<i64>,
    line: Option<i64>,
    id: Option<i64>,
    name: Option<i64>,
    tenant: Option<i64>,
    bytes: Option<i64>,
    items: Option<i64>,
    min: Option<f64>,
    max: Option<f64>,
    above: Option<f64>,
    capped: Option<i64>,
    shortest: Option<u64>,
    longest: Option<u64>,
    element: Option<Box<Limit>>,
    key: Option<Box<Limit>>,
}

impl Limit {
    fn read(option: &DynamicMessage) -> Result<Self, String> {
        let mut limit = Self::default();
        for (field, value) in option.fields() {
            let wrong = || format!("{} has an unexpected type", field.full_name());
            let number = || value.as_i64().or_else(|| value.as_i32().map(i64::from)).ok_or_else(wrong);
            let flag = || value.as_bool().ok_or_else(wrong);
            let text = || value.as_str().ok_or_else(wrong);
            let float = || value.as_f64().ok_or_else(wrong);
            let nested = || match value {
                Value::Message(nested) => Self::read(nested).map(Box::new),
                _ => Err(wrong()),
            };
            match field.name() {
                "required" => limit.required = flag()?,
                "output_only" => limit.output_only = flag()?,
                "refused" => limit.refused = flag()?,
                "request_size" => limit.request_size = flag()?,
                "conditional" => limit.conditional = flag()?,
                "characters" => limit.characters = Some(number()?),
                "line" => limit.line = Some(number()?),
                "id" => limit.id = Some(number()?),
                "name" => limit.name = Some(number()?),
                "tenant" => limit.tenant = Some(number()?),
                "bytes" => limit.bytes = Some(number()?),
                "items" => limit.items = Some(number()?),
                "min" => limit.min = Some(float()?),
                "max" => limit.max = Some(float()?),
                "above" => limit.above = Some(float()?),
                "capped" => limit.capped = Some(number()?),
                "shortest" => limit.shortest = Some(seconds(text()?)?),
                "longest" => limit.longest = Some(seconds(text()?)?),
                "element" => limit.element = Some(nested()?),
                "key" => limit.key = Some(nested()?),
                other => return Err(format!("the option limit.{other} is not implemented")),
            }
        }
        Ok(limit)
    }

    /// The names of the set options that only some kinds of fields have.
    fn specific(&self) -> Vec<&'static str> {
        [
            ("characters", self.characters.is_some()),
            ("line", self.line.is_some()),
            ("id", self.id.is_some()),
            ("name", self.name.is_some()),
            ("tenant", self.tenant.is_some()),
            ("bytes", self.bytes.is_some()),
            ("items", self.items.is_some()),
            ("min", self.min.is_some()),
            ("max", self.max.is_some()),
            ("above", self.above.is_some()),
            ("capped", self.capped.is_some()),
            ("shortest", self.shortest.is_some()),
            ("longest", self.longest.is_some()),
            ("element", self.element.is_some()),
            ("key", self.key.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, is_set)| is_set.then_some(name))
        .collect()
    }

    /// The options that a single value of this kind may have.
    fn fitting(kind: &Kind) -> &'static [&'static str] {
        match kind {
            Kind::String => &["characters", "line", "id", "name", "tenant", "bytes"],
            Kind::Bytes => &["bytes"],
            Kind::Double => &["min", "max", "above"],
            Kind::Int32 | Kind::Int64 => &["min", "max", "capped"],
            Kind::Message(message) if message.full_name() == "google.protobuf.Duration" => &["shortest", "longest"],
            _ => &[],
        }
    }

    /// Checks that the limit fits a single value of this kind, and bounds it.
    fn check(&self, kind: &Kind) -> Result<(), String> {
        let fitting = Self::fitting(kind);
        if let Some(wrong) = self.specific().into_iter().find(|name| !fitting.contains(name)) {
            return Err(format!("`{wrong}` does not fit its type"));
        }
        let bounded = match kind {
            Kind::String => self.request_size || !self.size().contains("Size::Request"),
            Kind::Bytes => self.bytes.is_some(),
            Kind::Double => self.max.is_some() && (self.min.is_some() || self.above.is_some()),
            Kind::Int32 | Kind::Int64 | Kind::Bool | Kind::Enum(_) | Kind::Message(_) => true,
            _ => return Err("is not implemented for its type".to_owned()),
        };
        bounded.then_some(()).ok_or_else(|| "has no limit".to_owned())
    }

    /// The maximum length of a text and its allowed characters, as Rust source.
    fn size(&self) -> String {
        let forms = [
            (self.characters, "Characters", "Any"),
            (self.line, "Characters", "Line"),
            (self.id, "Characters", "Id"),
            (self.name, "Characters", "Name"),
            (self.tenant, "Characters", "Tenant"),
            (self.bytes, "Bytes", "Any"),
        ];
        forms
            .into_iter()
            .find_map(|(most, unit, form)| Some(format!("size: Size::{unit}({}), form: Form::{form}", most?)))
            .unwrap_or_else(|| "size: Size::Request, form: Form::Any".to_owned())
    }

    /// A `TextLimit` as Rust source.
    fn text(&self) -> String {
        format!("TextLimit {{ required: {}, {} }}", self.required, self.size())
    }
}

/// Seconds of a duration such as "90s", "1m", "24h" or "7d".
fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a duration such as 10s, 5m, 24h or 7d");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    number.parse::<u64>().map(|number| number * unit).map_err(|_| wrong())
}

impl Field {
    fn new(descriptor: FieldDescriptor, option: &ExtensionDescriptor) -> Result<Self, String> {
        let of = |error| format!("{}: the option limit {error}", descriptor.full_name());
        let options = descriptor.options();
        let limit = match options.get_extension(option).as_message() {
            Some(message) if options.has_extension(option) => Limit::read(message).map_err(of)?,
            _ => Limit::default(),
        };
        if !(limit.output_only || limit.refused) {
            check_fit(&descriptor, &limit).map_err(of)?;
        }
        Ok(Self { descriptor, limit })
    }

    /// The message whose fields are checked with this field.
    fn nested(&self) -> Option<MessageDescriptor> {
        if self.limit.output_only || self.limit.refused {
            return None;
        }
        let kind = if self.descriptor.is_map() { map_value(&self.descriptor) } else { self.descriptor.kind() };
        match kind {
            Kind::Message(message) if message.package_name() == PACKAGE => Some(message),
            _ => None,
        }
    }

    fn name(&self) -> &str {
        self.descriptor.name()
    }

    /// The statement that checks the field. Empty if there is nothing to check.
    fn check(&self) -> String {
        let Self { descriptor, limit } = self;
        let name = descriptor.name();
        let at = format!("at.field({name:?})");
        if limit.output_only || limit.refused {
            return String::new();
        }
        if descriptor.is_map() {
            return self.check_map(&at);
        }
        if descriptor.is_list() {
            let element = Limit::default();
            let element = limit.element.as_deref().unwrap_or(&element);
            let mut checks = self.check_items(&at);
            let value = if by_copy(&descriptor.kind()) { "*value" } else { "value" };
            if let Some(check) = single("at", value, &descriptor.kind(), element, false) {
                let items = items_to_check(limit);
                let _ = write!(
                    checks,
                    "{{ let at = {at}; for (i, value) in self.{name}.iter().enumerate(){items} {{ let at = at.index(i); {check} }} }}"
                );
            }
            return checks;
        }
        if is_optional(descriptor) {
            let copy = if by_copy(&descriptor.kind()) { "*value" } else { "value" };
            let check = single(&at, copy, &descriptor.kind(), limit, true).unwrap_or_default();
            return if limit.required {
                format!("match &self.{name} {{ Some(value) => {{ {check} }} None => found.required({at}) }}")
            } else if check.is_empty() {
                String::new()
            } else {
                format!("if let Some(value) = &self.{name} {{ {check} }}")
            };
        }
        let value = if by_copy(&descriptor.kind()) { format!("self.{name}") } else { format!("&self.{name}") };
        single(&at, &value, &descriptor.kind(), limit, false).unwrap_or_default()
    }

    fn check_items(&self, at: &str) -> String {
        let Limit { required, items, conditional, .. } = self.limit;
        let name = self.name();
        let most = match items {
            Some(items) if !conditional => format!("Some({items})"),
            _ => "None".to_owned(),
        };
        if most == "None" && !required {
            return String::new();
        }
        format!("check::items({at}, self.{name}.len(), {required}, {most}, found);")
    }

    fn check_map(&self, at: &str) -> String {
        let name = self.name();
        let none = Limit::default();
        let key = self.limit.key.as_deref().unwrap_or(&none);
        let value = self.limit.element.as_deref().unwrap_or(&none);
        let key = single("at", "key", &Kind::String, key, false).unwrap_or_default();
        let value = single("at", "value", &map_value(&self.descriptor), value, false).unwrap_or_default();
        let items = self.check_items(at);
        format!(
            "{items} {{ let at = {at}; for (key, value) in &self.{name} {{ let at = at.key(key); {key} {value} }} }}"
        )
    }

    /// The statement that clears what the server sets. Empty if there is nothing to clear.
    fn clear(&self) -> String {
        let name = self.name();
        if self.limit.output_only {
            return format!("self.{name} = Default::default();");
        }
        if self.nested().is_none() || self.descriptor.is_map() {
            return String::new();
        }
        format!("for value in self.{name}.iter_mut() {{ value.clear_output_only(); }}")
    }

    /// The constant of the field's limit, for code that needs the number.
    fn constant(&self) -> Option<String> {
        let name = self.name().to_shouty_snake_case();
        let Self { descriptor, limit } = self;
        if limit.output_only || limit.refused {
            return None;
        }
        if let Some(items) = limit.items {
            return Some(format!("pub const {name}: usize = {items};"));
        }
        if descriptor.is_list() {
            return None;
        }
        match descriptor.kind() {
            Kind::String => Some(format!("pub const {name}: TextLimit = {};", limit.text())),
            Kind::Bytes => limit.bytes.map(|bytes| format!("pub const {name}: usize = {bytes};")),
            Kind::Int32 | Kind::Int64 => limit.capped.map(|max| format!("pub const {name}: i32 = {max};")),
            _ => None,
        }
    }
}

fn check_fit(field: &FieldDescriptor, limit: &Limit) -> Result<(), String> {
    let none = Limit::default();
    let element = limit.element.as_deref().unwrap_or(&none);
    if !field.is_list() && !field.is_map() {
        return limit.check(&field.kind());
    }
    if limit.items.is_none() && !limit.request_size {
        return Err("has no `items`".to_owned());
    }
    let is_text = matches!(field.kind(), Kind::String | Kind::Bytes);
    if field.is_map() {
        limit.key.as_deref().ok_or("has no `key`")?.check(&Kind::String)?;
        return element.check(&map_value(field));
    }
    if is_text || limit.element.is_some() {
        return element.check(&field.kind());
    }
    Ok(())
}

fn map_value(field: &FieldDescriptor) -> Kind {
    match field.kind() {
        Kind::Message(entry) => entry.map_entry_value_field().kind(),
        other => other,
    }
}

/// Whether the generated field is an `Option`.
fn is_optional(field: &FieldDescriptor) -> bool {
    let is_message = matches!(field.kind(), Kind::Message(_));
    field.cardinality() == Cardinality::Optional && (is_message || field.supports_presence())
}

fn by_copy(kind: &Kind) -> bool {
    match kind {
        Kind::String | Kind::Bytes => false,
        Kind::Message(message) => {
            message.full_name() == "google.protobuf.Duration" || message.full_name() == "google.protobuf.Timestamp"
        }
        _ => true,
    }
}

/// Elements after the maximum are rejected with the list, and not checked one by one.
fn items_to_check(limit: &Limit) -> String {
    limit.items.map_or_else(String::new, |items| format!(".take({items})"))
}

/// The statement that checks a single value. `None` if every value is valid.
fn single(at: &str, value: &str, kind: &Kind, limit: &Limit, is_present: bool) -> Option<String> {
    let required = limit.required;
    match kind {
        Kind::String => {
            let is_free = !required && (limit.request_size || limit.conditional);
            (!is_free).then(|| format!("check::text({at}, {value}, &{}, found);", limit.text()))
        }
        Kind::Bytes => {
            let most =
                limit.bytes.filter(|_| !limit.conditional).map_or("usize::MAX".to_owned(), |bytes| bytes.to_string());
            Some(format!("check::bytes({at}, {value}, {required}, {most}, found);"))
        }
        Kind::Int32 | Kind::Int64 => {
            let min = limit.min.unwrap_or(0.0);
            let max = limit.max.map_or("None".to_owned(), |max| format!("Some({max})"));
            let required = required && !is_present;
            Some(format!("check::integer({at}, i64::from({value}), {required}, {min}, {max}, found);"))
        }
        Kind::Double => {
            let max = limit.max.unwrap_or(f64::MAX);
            Some(match limit.above {
                Some(above) => format!("check::above({at}, {value}, {above:?}, {max:?}, found);"),
                None => format!("check::between({at}, {value}, {:?}, {max:?}, found);", limit.min.unwrap_or(f64::MIN)),
            })
        }
        Kind::Enum(choices) => {
            let name = choices.name().to_upper_camel_case();
            Some(format!("check::choice::<crate::{name}>({at}, {value}, {required}, found);"))
        }
        Kind::Message(message) => match message.full_name() {
            "google.protobuf.Duration" => {
                let shortest = limit.shortest.unwrap_or(0);
                let longest = limit.longest.map_or("None".to_owned(), |longest| format!("Some({longest})"));
                Some(format!("check::duration({at}, {value}, {shortest}, {longest}, found);"))
            }
            "google.protobuf.Timestamp" => Some(format!("check::timestamp({at}, {value}, found);")),
            name if name.starts_with("google.protobuf.") => None,
            _ => Some(format!("value.check({at}, found);")),
        },
        _ => None,
    }
}

/// The implementation of `Limited`, and the constants.
fn implementation(message: &MessageDescriptor, fields: &[Field]) -> String {
    let name = message.name();
    let module = name.to_snake_case();
    let alone = || fields.iter().filter(|field| !is_in_oneof(&field.descriptor));
    let checks: String = alone().map(Field::check).collect();
    let clears: String = alone().map(Field::clear).collect();
    let mut check_choices = String::new();
    let mut clear_choices = String::new();
    for oneof in message.oneofs().filter(|oneof| !oneof.is_synthetic()) {
        let path = format!("crate::{module}::{}", oneof.name().to_upper_camel_case());
        let (mut check_arms, mut clear_arms) = (String::new(), String::new());
        for field in fields
            .iter()
            .filter(|field| field.descriptor.containing_oneof().is_some_and(|it| it.name() == oneof.name()))
        {
            let variant = field.name().to_upper_camel_case();
            let copy = if by_copy(&field.descriptor.kind()) { "*value" } else { "value" };
            let at = format!("at.field({:?})", field.name());
            let is_checked = !(field.limit.output_only || field.limit.refused);
            let check = if is_checked { single(&at, copy, &field.descriptor.kind(), &field.limit, true) } else { None };
            let _ = write!(
                check_arms,
                "Some({path}::{variant}(value)) => {{ {} }}",
                check.unwrap_or("let _ = value;".to_owned())
            );
            let clear = if field.nested().is_some() { "value.clear_output_only();" } else { "let _ = value;" };
            let _ = write!(clear_arms, "Some({path}::{variant}(value)) => {{ {clear} }}");
        }
        let name = oneof.name();
        let _ = write!(check_choices, "match &self.{name} {{ {check_arms} None => {{}} }}");
        let _ = write!(clear_choices, "match &mut self.{name} {{ {clear_arms} None => {{}} }}");
    }
    let constants: String = fields.iter().filter_map(Field::constant).collect();
    let constants = if constants.is_empty() {
        String::new()
    } else {
        let text = if constants.contains("TextLimit") { "use super::{Form, Size, TextLimit};" } else { "" };
        format!("/// Limits of [`{name}`](crate::{name}).\npub mod {module} {{ {text} {constants} }}\n")
    };
    format!(
        "impl Limited for crate::{name} {{\n\
         fn check(&self, at: Path<'_>, found: &mut dyn Report) {{ let _ = (at, &found); {check_choices} {checks} }}\n\
         fn clear_output_only(&mut self) {{ {clear_choices} {clears} }}\n}}\n{constants}"
    )
}

fn is_in_oneof(field: &FieldDescriptor) -> bool {
    field.containing_oneof().is_some_and(|oneof| !oneof.is_synthetic())
}
