"""Generates the pages of the API reference from the comments in proto/, read from an image built by buf (JSON with source positions)."""

import json
import re

# Paths into a FileDescriptorProto (descriptor.proto): the numbers of its fields.
MESSAGE, ENUM, SERVICE, EXTENSION = 4, 5, 6, 7
FIELD, NESTED, NESTED_ENUM, METHOD, VALUE = 2, 3, 4, 2, 2
TYPES = {"GROUP", "MESSAGE", "ENUM"}
# The option of a field with its limit in requests.
LIMIT = "[contextd.v1.limit]"


class Missing(Exception):
    """An element of the API without a comment."""


class Reference:
    def __init__(self, image):
        files = [file for file in json.loads(image)["file"] if file["name"].startswith("contextd/")]
        self.files = {file["name"]: file for file in files}
        self.messages, self.enums, self.methods, self.pages = {}, {}, {}, {}
        self.counts = {"RPCs": 0, "messages": 0, "fields": 0, "enums": 0, "values": 0}
        for file in files:
            scope = "." + file["package"]
            self.index(file["name"], scope, file.get("messageType", []), file.get("enumType", []))
            for service in file.get("service", []):
                for method in service["method"]:
                    self.methods[f"{scope[1:]}.{service['name']}/{method['name']}"] = method

    def index(self, file, scope, messages, enums):
        for enum in enums:
            self.enums[f"{scope}.{enum['name']}"] = enum
            self.pages[f"{scope}.{enum['name']}"] = (page_name(file), enum["name"])
        for message in messages:
            name = f"{scope}.{message['name']}"
            self.messages[name] = message
            self.pages[name] = (page_name(file), message["name"])
            self.index(file, name, message.get("nestedType", []), message.get("enumType", []))

    # --- Requests in the pages ---------------------------------------------------------------------------

    def wrong_fields(self, type_name, value, path=""):
        """The fields of a JSON value that the message does not have. Both spellings of names are accepted."""
        message = self.messages.get(type_name)
        if message is None:
            enum = self.enums.get(type_name)
            if enum and isinstance(value, str) and value not in {v["name"] for v in enum["value"]}:
                return [f"{path}: {enum['name']} has no {value}"]
            return []
        if not isinstance(value, dict):
            return [f"{path or 'the request'} is not an object"]
        fields = {name: field for field in message.get("field", []) for name in (field["name"], field["jsonName"])}
        problems = []
        for name, content in value.items():
            where = f"{path}.{name}" if path else name
            if name not in fields:
                problems.append(f"{where}: {message['name']} has no such field")
                continue
            field = fields[name]
            kind = field.get("typeName", "")
            if self.is_map(field):
                entry = self.messages[kind]["field"][1]
                problems += [p for k, v in content.items() for p in self.wrong_fields(entry.get("typeName", ""), v, f"{where}.{k}")]
            else:
                many = content if field["label"] == "LABEL_REPEATED" else [content]
                problems += [p for item in many for p in self.wrong_fields(kind, item, where)]
        return problems

    def is_map(self, field):
        return self.messages.get(field.get("typeName", ""), {}).get("options", {}).get("mapEntry", False)

    # --- Pages ---------------------------------------------------------------------------------------------

    def written(self):
        """{file name: text} of all pages."""
        pages = {page_name(name): self.page(file) for name, file in self.files.items()}
        return {"index.md": self.overview(), **pages}

    def chapters(self):
        """(title, file name) of the pages, services first."""
        services = [n for n, file in self.files.items() if file.get("service")]
        others = [n for n in self.files if n not in services]
        return [(self.title(n), page_name(n)) for n in sorted(services) + sorted(others)]

    def title(self, name):
        services = [service["name"] for service in self.files[name].get("service", [])]
        return services[0] if services else name.rsplit("/", 1)[1]

    def overview(self):
        lines = ["# API reference", "", "Generated from the comments in `proto/contextd/v1`. gRPC, package `contextd.v1`.", ""]
        for name in sorted(self.files):
            for service in self.files[name].get("service", []):
                lines += [f"## {service['name']}", "", "| RPC | access | |", "|---|---|---|"]
                for i, method in enumerate(service["method"]):
                    path = (SERVICE, self.files[name]["service"].index(service), METHOD, i)
                    first = self.comment(name, path, method["name"]).split("\n\n")[0]
                    sentence = re.split(r"(?<=\.)\s", first, maxsplit=1)[0]
                    link = f"[{method['name']}]({page_name(name)}#{method['name'].lower()})"
                    lines.append(f"| {link} | {access(method)} | {cell(sentence)} |")
                lines.append("")
        lines += ["## Messages and enums", ""]
        for name in sorted(self.files):
            if not self.files[name].get("service"):
                names = [m["name"] for kind in ("messageType", "enumType") for m in self.files[name].get(kind, [])]
                links = ", ".join(f"[{n}]({page_name(name)}#{n.lower()})" for n in sorted(names))
                lines.append(f"- [{name.rsplit('/', 1)[1]}]({page_name(name)}){': ' + links if links else ''}")
        return "\n".join(lines) + "\n"

    def page(self, file):
        name = file["name"]
        lines = [f"# {self.title(name)}", "", f"`{name}`, package `{file['package']}`", ""]
        for i, service in enumerate(file.get("service", [])):
            lines += [prose(self.comment(name, (SERVICE, i), service["name"])), ""]
            lines += [line for j, method in enumerate(service["method"]) for line in self.method(name, (SERVICE, i, METHOD, j), method)]
        for i, message in enumerate(file.get("messageType", [])):
            lines += self.message(name, (MESSAGE, i), message, message["name"])
        for i, enum in enumerate(file.get("enumType", [])):
            lines += self.enum(name, (ENUM, i), enum)
        for i, extension in enumerate(file.get("extension", [])):
            lines += [f"## {extension['name']}", "", prose(self.comment(name, (EXTENSION, i), extension["name"])), ""]
            lines += [f"An option of {extension['extendee'].rsplit('.', 1)[1]}: {self.type_of(extension)}.", ""]
        return "\n".join(lines)

    def method(self, file, path, method):
        self.counts["RPCs"] += 1
        ask = ("stream " if method.get("clientStreaming") else "") + self.link(method["inputType"])
        answer = ("stream " if method.get("serverStreaming") else "") + self.link(method["outputType"])
        read_only = ", no side effects" if method.get("options", {}).get("idempotencyLevel") == "NO_SIDE_EFFECTS" else ""
        head = [f"## {method['name']}", "", f"{ask} → {answer}; access: {access(method)}{read_only}", ""]
        return [*head, prose(self.comment(file, path, method["name"])), ""]

    def message(self, file, path, message, shown):
        if message.get("options", {}).get("mapEntry"):
            return []
        self.counts["messages"] += 1
        lines = [f"## {shown}", "", prose(self.comment(file, path, shown)), ""]
        if fields := message.get("field"):
            lines += ["| field | type | |", "|---|---|---|"]
            lines += [self.field(file, (*path, FIELD, i), message, field) for i, field in enumerate(fields)]
            lines.append("")
        for i, nested in enumerate(message.get("nestedType", [])):
            lines += self.message(file, (*path, NESTED, i), nested, nested["name"])
        for i, enum in enumerate(message.get("enumType", [])):
            lines += self.enum(file, (*path, NESTED_ENUM, i), enum)
        return lines

    def field(self, file, path, message, field):
        self.counts["fields"] += 1
        kind = self.type_of(field)
        if "oneofIndex" in field and not field.get("proto3Optional"):
            kind += f", one of `{message['oneofDecl'][field['oneofIndex']]['name']}`"
        comment = self.comment(file, path, f"{message['name']}.{field['name']}")
        limit = self.limit(field)
        return f"| `{field['name']}` = {field['number']} | {kind} | {cell(comment)}{f' Limit: {limit}.' if limit else ''} |"

    def limit(self, field):
        """The limit of a field in requests, for people. Empty if it has none."""
        return limit_text(field.get("options", {}).get(LIMIT, {}))

    def enum(self, file, path, enum):
        self.counts["enums"] += 1
        lines = [f"## {enum['name']}", "", prose(self.comment(file, path, enum["name"])), "", "| value | |", "|---|---|"]
        for i, value in enumerate(enum["value"]):
            self.counts["values"] += 1
            comment = self.comment(file, (*path, VALUE, i), value["name"])
            lines.append(f"| `{value['name']}` = {value['number']} | {cell(comment)} |")
        return [*lines, ""]

    def type_of(self, field):
        if self.is_map(field):
            key, value = self.messages[field["typeName"]]["field"]
            return f"map of {self.type_of(key)} to {self.type_of(value)}"
        plain = field["type"].removeprefix("TYPE_")
        shown = self.link(field["typeName"]) if plain in TYPES else plain.lower()
        if field["label"] == "LABEL_REPEATED":
            return f"list of {shown}"
        return f"optional {shown}" if field.get("proto3Optional") else shown

    def link(self, type_name):
        if type_name not in self.pages:
            return f"`{type_name.removeprefix('.')}`"
        page, name = self.pages[type_name]
        return f"[{name}]({page}#{name.lower()})"

    def comment_of(self, type_name, field_name):
        """The comment of a field of a message at the top of a file, or `None`."""
        for file in self.files.values():
            for i, message in enumerate(file.get("messageType", [])):
                if f".{file['package']}.{message['name']}" == type_name:
                    names = [field["name"] for field in message.get("field", [])]
                    if field_name in names:
                        return self.comment(file["name"], (MESSAGE, i, FIELD, names.index(field_name)), field_name)
        return None

    def comment(self, file, path, name):
        """The comment of the element at a path. buf lint requires comments too."""
        comments = self.files[file].get("_comments")
        if comments is None:
            locations = self.files[file]["sourceCodeInfo"]["location"]
            comments = {tuple(at.get("path", [])): at.get("leadingComments", "") for at in locations}
            self.files[file]["_comments"] = comments
        text = "\n".join(line.removeprefix(" ") for line in comments.get(path, "").splitlines()).strip()
        if not text:
            raise Missing(f"{file}: {name} has no comment")
        return text


def page_name(file):
    return file.rsplit("/", 1)[1].removesuffix(".proto") + ".md"


def access(method):
    return "`" + method["options"]["[contextd.v1.access]"].removeprefix("ACCESS_").lower() + "`"


def escaped(text):
    """Text with escaped Markdown characters, except in code."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([<>\[\]*|\\])", r"\\\1", p) for p in pieces)


def prose(text):
    return escaped(text)


def cell(text):
    """Text on one line, for a table. `|` is escaped in code too, where it would also split the cell."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    return re.sub(r"(?<!\\)\|", r"\\|", "<br>".join(escaped(paragraph) for paragraph in paragraphs))


def limit_text(limit):
    """What an option `limit` says."""
    if limit.get("outputOnly"):
        return "output only, ignored in requests"
    if limit.get("refused"):
        return "refused in requests"
    parts = ["required"] if limit.get("required") else []
    for name, form in (
        ("characters", "characters"),
        ("line", "characters without control characters"),
        ("id", "characters of `A-Za-z0-9._:-`"),
        ("name", "characters of `A-Za-z0-9_-`"),
        ("tenant", "characters of `a-z0-9._-`"),
        ("items", "elements"),
    ):
        if name in limit:
            parts.append(f"at most {limit[name]:,} {form}")
    if "bytes" in limit:
        parts.append(f"at most {size(int(limit['bytes']))}")
    if "capped" in limit:
        parts.append(f"a number above {limit['capped']:,} means {limit['capped']:,}")
    parts += number_range(limit)
    if "longest" in limit:
        longest = duration(limit["longest"])
        parts.append(f"{duration(limit['shortest'])} to {longest}" if "shortest" in limit else f"at most {longest}")
    for name, of in (("key", "each key"), ("element", "each element")):
        if name in limit and (text := limit_text(limit[name])):
            parts.append(f"{of}: {text}")
    if limit.get("conditional"):
        parts.append("see the comment of the field")
    return "; ".join(parts)


def number_range(limit):
    shown = {name: f"{limit[name]:,}" for name in ("min", "max", "above") if name in limit}
    if "above" in shown:
        return [f"above {shown['above']}, at most {shown['max']}"]
    if {"min", "max"} <= shown.keys():
        return [f"{shown['min']} to {shown['max']}"]
    return [f"at least {shown['min']}"] if "min" in shown else [f"at most {shown['max']}"] if "max" in shown else []


def duration(text):
    """A duration such as 24h, with a unit for people."""
    unit = {"s": "s", "m": "min", "h": "h", "d": "days"}[text[-1]]
    return f"{int(text[:-1]):,} {unit}"


def size(number):
    """A number of bytes in the largest unit that divides it."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number % factor == 0:
            return f"{number // factor} {unit}"
    return f"{number} bytes"
