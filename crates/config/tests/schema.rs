//! The JSON schema of a configuration, by a validator that knows nothing of it.

use boon::{Compiler, SchemaIndex, Schemas};
use config::{ADMIN, CLASS, Field, FieldDefault, Form, GATE, LOG, OWN_TARGET, PROCESS, ROUTE};
use serde_json::{Value, json};

struct Validator {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Validator {
    fn check(&self, instance: &Value) -> Result<(), String> {
        self.schemas.validate(instance, self.index).map_err(|error| format!("{error:#}"))
    }

    fn is_valid(&self, instance: &Value) -> bool {
        self.check(instance).is_ok()
    }
}

/// A validator by our schema, which is one itself.
fn validator() -> Validator {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    let schema = serde_json::from_str(&config::schema()).expect("it is JSON");
    compiler.add_resource("http://localhost/schema.json", schema).expect("it has a name");
    let index = compiler.compile("http://localhost/schema.json", &mut schemas).expect("it is a schema");
    Validator { schemas, index }
}

fn json_of(text: &str) -> Value {
    let table: toml::Table = text.parse().expect("it is TOML");
    serde_json::to_value(table).expect("it can be told as JSON")
}

fn assert_valid(validator: &Validator, instance: &Value) {
    let checked = validator.check(instance);
    assert!(checked.is_ok(), "{checked:?}\n{instance:#}");
}

/// A configuration with this value of a key in this table.
fn with(table: &str, field: &Field, value: &str) -> Value {
    let below = if table == "admin" || table == "log" || table == "process" {
        format!("[{table}]\n{} = {value}\n[[gate]]\nupstream = \"db:5432\"\n", field.key)
    } else if table == "gate" {
        let upstream = if field.key == "upstream" { "" } else { "upstream = \"db:5432\"\n" };
        format!("[[gate]]\n{upstream}{} = {value}\n", field.key)
    } else {
        let own = required(table).into_iter().filter(|key| *key != field.key);
        let own: String = own.map(|key| format!("{key} = \"x\"\n")).collect();
        format!("[[gate]]\nupstream = \"db:5432\"\n[[gate.{table}]]\n{own}{} = {value}\n", field.key)
    };
    json_of(&below)
}

const TABLES: [(&str, &[Field]); 7] = [
    ("admin", ADMIN),
    ("log", LOG),
    ("process", PROCESS),
    ("gate", GATE),
    ("route", ROUTE),
    ("class", CLASS),
    ("type", OWN_TARGET),
];

fn required(table: &str) -> Vec<&'static str> {
    let fields = TABLES.iter().find(|(name, _)| *name == table).map_or(&[][..], |(_, fields)| fields);
    fields.iter().filter(|field| field.default == FieldDefault::Required).map(|field| field.key).collect()
}

fn fields() -> impl Iterator<Item = (&'static str, &'static Field)> {
    let all = TABLES.into_iter().flat_map(|(table, fields)| fields.iter().map(move |field| (table, field)));
    all.filter(|(_, field)| field.form != Form::Tables)
}

#[test]
fn the_example_and_what_is_in_force_are_valid_with_every_key() {
    let validator = validator();
    assert_valid(&validator, &json_of(&config::example()));
    // Every line of it, in force.
    let mut known = 0;
    for protocol in ["postgres", "mysql", "http"] {
        let more = if protocol == "mysql" { "users_file = \"/etc/users\"\n" } else { "" };
        let text = format!("[[gate]]\nprotocol = \"{protocol}\"\nupstream = \"127.0.0.1:1\"\n{more}");
        let world = config::parse(config::Origin::CommandLine, &text).expect("it is right");
        let effective = config::effective(&world);
        assert_valid(&validator, &json_of(&effective));
        known += effective.lines().filter(|line| line.contains(" = ")).count();
    }
    assert!(known > 100, "{known}");
}

#[test]
fn every_default_is_valid_and_a_variable_may_stand_for_every_value() {
    let validator = validator();
    for (table, field) in fields() {
        let defaults = match field.default {
            FieldDefault::Value(value) => vec![value],
            FieldDefault::Each(postgres, mysql, http) => vec![postgres, mysql, http],
            FieldDefault::Derived(_) | FieldDefault::Required => Vec::new(),
        };
        for value in defaults.into_iter().chain(["\"${VALUE}\""]) {
            assert_valid(&validator, &with(table, field, value));
        }
    }
}

#[test]
fn what_no_key_takes_is_refused() {
    let validator = validator();
    let mut checked = 0;
    for (table, field) in fields() {
        let takes_words =
            field.takes.starts_with('`') || field.takes.starts_with(|first: char| first.is_ascii_digit());
        let is_form =
            [":", "/", "such as"].iter().any(|sign| field.takes.contains(sign)) || field.key == "goal";
        if takes_words && !is_form {
            checked += 1;
            for value in ["\"nonsense\"", "-1", "[[1]]"] {
                assert!(!validator.is_valid(&with(table, field, value)), "{table}: {} = {value}", field.key);
            }
        }
        assert!(!validator.is_valid(&with(table, field, "{ a = 1 }")), "{table}: {}", field.key);
    }
    assert!(checked > 40, "{checked}");
    for wrong in [
        "[[gate]]\nupstream = \"db:5432\"\nconections = 5\n",
        "[[gate]]\nname = \"x\"\n",
        "[gate]\nupstream = \"db:5432\"\n",
        "[admin]\n",
        "gate = []\n",
        "[[gate]]\nupstream = \"db:5432\"\n[[gate.class]]\nname = \"a\"\nweigth = 2\n",
        "[[gate]]\nupstream = \"db:5432\"\nmax_clients = 2000000\n",
    ] {
        assert!(!validator.is_valid(&json_of(wrong)), "{wrong}");
    }
    let known = json!({ "gate": [{ "upstream": "db:5432", "connections": "auto", "long_limit": 0 }] });
    assert_valid(&validator, &known);
}
