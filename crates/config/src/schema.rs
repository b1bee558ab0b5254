//! The keys as a JSON schema (2020-12), by which editors complete and check a configuration.
//!
//! What a key takes is told by the same words that the reference page has. A schema knows fewer rules than
//! `gatekeeper check`: it tells names of keys, kinds of values, choices and ranges.

use serde_json::{Map, Value, json};
use toml::de::DeValue;

use crate::raw::{ADMIN, CLASS, Field, FieldDefault, Form, GATE, LOG, OWN_TARGET, PROCESS, ROUTE};

/// The schema of a configuration, as JSON.
pub fn schema() -> String {
    let mut properties = Map::new();
    for (name, fields, doc) in [
        ("admin", ADMIN, "The listener for metrics, health and commands."),
        ("log", LOG, "What the process writes to standard error."),
        ("process", PROCESS, "Limits of the whole process."),
    ] {
        properties.insert(name.to_owned(), table(fields, doc));
    }
    let mut gates = list_of(table(GATE, "One protected service."));
    gates["minItems"] = json!(1);
    properties.insert("gate".to_owned(), gates);
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Gatekeeper's configuration",
        "type": "object",
        "additionalProperties": false,
        "required": ["gate"],
        "properties": properties,
    });
    format!("{schema:#}\n")
}

fn list_of(item: Value) -> Value {
    json!({ "type": "array", "items": item })
}

fn table(fields: &[Field], doc: &str) -> Value {
    let properties: Map<_, _> = fields.iter().map(|field| (field.key.to_owned(), property(field))).collect();
    let required: Vec<_> = fields
        .iter()
        .filter(|field| field.default == FieldDefault::Required)
        .map(|field| field.key)
        .collect();
    json!({
        "type": "object",
        "description": doc,
        "additionalProperties": false,
        "required": required,
        "properties": properties,
    })
}

fn property(field: &Field) -> Value {
    let mut property = match (field.form, field.key) {
        (Form::Tables, "route") => list_of(table(ROUTE, "Which requests have a type of this name.")),
        (Form::Tables, "class") => list_of(table(CLASS, "Which requests belong to a service class.")),
        (Form::Tables, _) => list_of(table(OWN_TARGET, "A type with a target of its own.")),
        _ => kind(field.takes),
    };
    let takes = if field.form == Form::Tables { String::new() } else { format!(" Takes {}.", field.takes) };
    property["description"] = json!(format!("{}{takes}", field.doc).replace('`', ""));
    if let FieldDefault::Value(text) = field.default {
        property["default"] = default(text);
    }
    property
}

fn default(text: &str) -> Value {
    match DeValue::parse(text).map(toml::Spanned::into_inner) {
        Ok(DeValue::Integer(number)) => json!(number.as_str().parse::<i64>().unwrap_or_default()),
        Ok(DeValue::Float(number)) => json!(number.as_str().parse::<f64>().unwrap_or_default()),
        Ok(DeValue::Boolean(value)) => json!(value),
        Ok(DeValue::Array(_)) => json!([]),
        _ => json!(text.trim_matches('"')),
    }
}

/// The kind of value that these words tell.
fn kind(takes: &str) -> Value {
    let text = json!({ "type": "string" });
    let words = words(takes);
    let mut kinds = if matches!(takes, "`true` or `false`" | "a boolean") {
        vec![json!({ "type": "boolean" })]
    } else if takes.contains("or a list") || takes.contains("also a list") || is_list(takes) {
        return json!({ "anyOf": [text, list_of(text)] });
    } else if let Some((least, most)) = range(takes) {
        let kind = if takes.starts_with("a number") { "number" } else { "integer" };
        let least = if takes.contains("or 0 ") { json!(0) } else { least };
        let mut number = json!({ "type": kind, "minimum": least });
        if let Some(most) = most {
            number["maximum"] = most;
        }
        vec![number]
    } else if takes.starts_with("a whole number") {
        vec![json!({ "type": "integer", "minimum": 0 })]
    } else if takes.starts_with("a number") || takes.starts_with("requests per second") {
        vec![json!({ "type": "number", "minimum": 0 })]
    } else if takes.starts_with('`') && words.iter().all(|word| is_choice(word)) {
        Vec::new()
    } else {
        return text;
    };
    if !words.is_empty() {
        kinds.push(json!({ "enum": words }));
    }
    kinds.push(json!({ "type": "string", "pattern": r"\$\{" }));
    json!({ "anyOf": kinds })
}

fn is_list(takes: &str) -> bool {
    ["a list", "paths", "names", "fields", "addresses", "pairs"].iter().any(|of| takes.starts_with(of))
}

/// What stands in quotes.
fn words(takes: &str) -> Vec<&str> {
    takes.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix('"')?.strip_suffix('"')).collect()
}

/// Whether a text in quotes is one of several choices, and no form such as `host:port`.
fn is_choice(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

/// The bounds of `1 to 64` at the beginning, or behind a choice. The upper one may be another key.
fn range(takes: &str) -> Option<(Value, Option<Value>)> {
    let before = takes.strip_prefix("a number from ").unwrap_or(takes);
    let digits = before.find(|letter: char| letter.is_ascii_digit())?;
    let is_behind_choice = before.starts_with("`\"auto\"`, ");
    if digits > 0 && !is_behind_choice {
        return None;
    }
    let (least, most) = before[digits..].split_once(" to ")?;
    let number = |text: &str| {
        text.parse::<f64>().ok().map(|number| match number.fract() {
            0.0 => json!(number as i64),
            _ => json!(number),
        })
    };
    let end = most.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(most.len());
    Some((number(least)?, number(&most[..end])))
}
