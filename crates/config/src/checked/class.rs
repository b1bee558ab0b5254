//! The service classes of a gate: their weights, and the rules by which requests belong to them.

use admission::{ClassId, ServiceClass, Weight};
use toml::Spanned;
use toml::de::DeValue;

use super::http::{Network, networks, route_path};
use crate::raw::{self, CLASS, Complaint, Section};

/// The most tables of one gate: rules, of all its classes together.
const TABLES_MAX: usize = 1000;
/// The most paths, hosts or fields of one rule.
const LIST_MAX: usize = 100;
/// The longest host, in bytes.
const HOST_BYTES_MAX: usize = 253;
/// The longest field with its value, in bytes.
const FIELD_BYTES_MAX: usize = 1000;
const HINT: &str = "write [[gate.class]] with a `name` below, and such as path = \"/api/**\"";

/// A table of a class: a rule for it, or the weight of the default class.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Whose rule it is; several may have the same.
    pub name: String,
    /// The weight, if it stands here.
    pub weight: Option<Weight>,
    /// One of these, as they are written; none: any.
    pub paths: Vec<String>,
    /// One of these, in lower case; none: any.
    pub hosts: Vec<String>,
    /// One of these; none: any.
    pub fields: Vec<FieldRule>,
    /// One of these; none: any.
    pub networks: Vec<Network>,
}

/// A field that a request has to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRule {
    /// In lower case.
    pub name: String,
    /// With this value; `None`: with any.
    pub value: Option<String>,
}

impl std::fmt::Display for FieldRule {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.value {
            Some(value) => write!(formatter, "{}: {value}", self.name),
            None => formatter.write_str(&self.name),
        }
    }
}

impl Class {
    fn has_rule(&self) -> bool {
        !(self.paths.is_empty()
            && self.hosts.is_empty()
            && self.fields.is_empty()
            && self.networks.is_empty())
    }
}

/// Whether classes need rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    /// They say which requests belong to a class.
    Needed,
    /// In a scenario the sources say it.
    Optional,
}

/// What the judge is told of them.
pub(super) fn policy(classes: &[Class]) -> Vec<ServiceClass> {
    let mut all: Vec<ServiceClass> = Vec::new();
    for class in classes {
        let id = ClassId::named(&class.name);
        let known = match all.iter_mut().find(|known| known.id == id) {
            Some(known) => known,
            None => {
                all.push(ServiceClass { id, weight: Weight::ONE });
                all.last_mut().expect("it has just been added")
            }
        };
        known.weight = class.weight.unwrap_or(known.weight);
    }
    all
}

/// Reads all of a gate.
pub(super) fn read(section: &mut Section<'_>, rules: Rules) -> Vec<Class> {
    let Some(tables) = section.tables("class", "[[gate.class]]") else { return Vec::new() };
    if tables.len() > TABLES_MAX {
        section.complain("class", Complaint::new(format!("there are more than {TABLES_MAX} tables")));
        return Vec::new();
    }
    let mut classes: Vec<Class> = Vec::new();
    for table in tables {
        let class = read_one(section, table, &classes, rules);
        classes.extend(class);
    }
    let others = policy(&classes).iter().filter(|class| class.id != ClassId::DEFAULT).count();
    if others >= ServiceClass::MOST {
        let most = ServiceClass::MOST;
        let why = format!("there are more than {most} classes, the default one among them");
        section.complain("class", Complaint::new(why).hint("several rules may be of one class"));
    }
    classes
}

fn read_one(
    section: &mut Section<'_>,
    table: &Spanned<DeValue<'_>>,
    before: &[Class],
    rules: Rules,
) -> Option<Class> {
    let errors_before = section.error_count();
    let mut below = section.below("class", table, CLASS, HINT)?;
    if !below.has("name") {
        below.complain("name", Complaint::new("is missing").hint("say what the class is called"));
    }
    let class = Class {
        name: below.read_given("name", super::gate::name).unwrap_or_default(),
        weight: below.read_given("weight", weight),
        paths: below.read_given("path", |value| some(raw::texts(value)?, path)).unwrap_or_default(),
        hosts: below.read_given("host", |value| some(raw::texts(value)?, host)).unwrap_or_default(),
        fields: below.read_given("header", |value| some(raw::texts(value)?, field)).unwrap_or_default(),
        networks: below.read_given("network", some_networks).unwrap_or_default(),
    };
    if below.error_count() > errors_before {
        return None;
    }
    let is_same = |other: &&Class| other.name == class.name;
    if class.name == ClassId::DEFAULT_NAME && class.has_rule() {
        let why = "is the class of all that no rule fits, and has none itself";
        below.complain("name", Complaint::new(why).hint("give it another name, or only a weight"));
    } else if class.name != ClassId::DEFAULT_NAME && !class.has_rule() && rules == Rules::Needed {
        let why = format!("nothing says which requests {:?} is for", class.name);
        let hint = "write `path`, `host`, `header` or `network`, or call it \"default\"";
        below.complain("name", Complaint::new(why).hint(hint));
    }
    if class.weight.is_some() && before.iter().filter(is_same).any(|other| other.weight.is_some()) {
        let why = format!("another table of {:?} says the weight", class.name);
        below.complain("weight", Complaint::new(why).hint("leave one of them out"));
    }
    Some(class)
}

fn weight(value: &DeValue<'_>) -> Result<Weight, Complaint> {
    let number = raw::amount(value)?;
    Weight::new(number).ok_or_else(|| Complaint::new("must be from 0.001 to 1000"))
}

/// At least one, not too many, each read.
fn some<T>(texts: Vec<String>, read: impl Fn(&str) -> Result<T, Complaint>) -> Result<Vec<T>, Complaint> {
    if texts.is_empty() {
        return Err(Complaint::new("is empty, so it fits nothing").hint("leave it out for any"));
    }
    if texts.len() > LIST_MAX {
        return Err(
            Complaint::new(format!("has more than {LIST_MAX}")).hint("write another table of the same name")
        );
    }
    texts.iter().map(|text| read(text)).collect()
}

fn some_networks(value: &DeValue<'_>) -> Result<Vec<Network>, Complaint> {
    let all = networks(value)?;
    if all.is_empty() {
        Err(Complaint::new("is empty, so it fits nothing").hint("leave it out for any"))
    } else {
        Ok(all)
    }
}

fn path(text: &str) -> Result<String, Complaint> {
    route_path(text.to_owned())
}

fn host(text: &str) -> Result<String, Complaint> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let is_name =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'[' | b']');
    let has_port = !name.starts_with('[') && name.contains(':');
    if name.is_empty() || text.len() > HOST_BYTES_MAX || has_port || !name.bytes().all(is_name) {
        let hint = "write such as \"shop.example\" or \"*.shop.example\", without a port";
        return Err(Complaint::new(format!("{text:?} isn't a host")).hint(hint));
    }
    Ok(text.to_ascii_lowercase())
}

fn field(text: &str) -> Result<FieldRule, Complaint> {
    let (name, value) = match text.split_once(':') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (text.trim(), None),
    };
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_field = !name.is_empty() && name.bytes().all(is_token);
    let is_value = value
        .is_none_or(|value| !value.is_empty() && value.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    if !is_field || !is_value || text.len() > FIELD_BYTES_MAX {
        let hint = "write its name, such as \"authorization\", or with a value, such as \"x-tenant: gold\"";
        return Err(Complaint::new(format!("{text:?} isn't a field")).hint(hint));
    }
    Ok(FieldRule { name: name.to_ascii_lowercase(), value: value.map(str::to_owned) })
}
