//! The service classes of a gate: their weights, and the rules by which requests belong to them.

use admission::{ClassGoal, ClassId, Measure, ServiceClass, Share, Statistic, Turns, Weight};
use toml::Spanned;
use toml::de::DeValue;

use super::http::{Network, networks, route_path};
use super::number;
use super::types::statement_name;
use crate::complaint::Complaint;
use crate::protocol::Protocol;
use crate::raw::{self, CLASS, Section, is_class_key_of};

mod cover;

/// The most tables of one gate: rules, of all its classes together.
const TABLES_MAX: usize = 1000;
/// The most paths, hosts or fields of one rule.
const LIST_MAX: usize = 100;
/// The longest host, in bytes.
const HOST_BYTES_MAX: usize = 253;
/// The longest field or tag with its value, in bytes.
const FIELD_BYTES_MAX: usize = 1000;
/// The longest name of a user, a database or an application, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The longest value of a tag, in bytes: what is longer is cut when it is read.
const TAG_BYTES_MAX: usize = 128;
/// The longest name of a control group, and the longest path of one, in bytes.
const GROUP_BYTES_MAX: usize = 255;
const GROUP_PATH_MAX: usize = 2000;
const HINT: &str =
    "write [[gate.class]] with a `name` below, and such as path = \"/api/**\" or user = \"reports\"";

/// A table of a class: a rule for it, or the weight of the default class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Class {
    /// Whose rule it is; several may have the same.
    pub name: String,
    /// The weight, if it stands here.
    pub weight: Option<Weight>,
    /// The goal, if it stands here.
    pub goal: Option<ClassGoal>,
    /// Its importance, if it stands here.
    pub importance: Option<u8>,
    /// Its least share, if it stands here.
    pub floor: Option<Share>,
    /// Its largest share, if it stands here.
    pub ceiling: Option<Share>,
    /// How it takes turns, if it stands here.
    pub turns: Option<Turns>,
    /// The control group of its workers, from the root of the hierarchy on, if it stands here.
    pub cgroup: Option<String>,
    /// What its tenants are known by, if it stands here.
    pub tenant: Option<TenantBy>,
    /// One of these, as they are written; none: any.
    pub paths: Vec<String>,
    /// One of these, in lower case; none: any.
    pub hosts: Vec<String>,
    /// One of these; none: any.
    pub fields: Vec<FieldRule>,
    /// One of these; none: any.
    pub networks: Vec<Network>,
    /// One of these users; none: any. Here and in the next two lists a `*` at the end stands for anything.
    pub users: Vec<String>,
    /// One of these databases; none: any.
    pub databases: Vec<String>,
    /// One of these applications; none: any.
    pub applications: Vec<String>,
    /// One of these types; none: any.
    pub types: Vec<String>,
    /// One of these tags; none: any.
    pub tags: Vec<TagRule>,
}

/// What makes a tenant of those whose requests are of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantBy {
    /// The address, or for IPv6 the network of 64 bits, that a client comes from.
    Network,
    /// The user that logged in.
    User,
    /// The value of this field, in lower case.
    Header(String),
}

impl std::fmt::Display for TenantBy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Network => formatter.write_str("network"),
            Self::User => formatter.write_str("user"),
            Self::Header(name) => write!(formatter, "header {name}"),
        }
    }
}

/// A tag that a statement has to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagRule {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
}

impl std::fmt::Display for TagRule {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}={}", self.key, self.value)
    }
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
            && self.networks.is_empty()
            && self.users.is_empty()
            && self.databases.is_empty()
            && self.applications.is_empty()
            && self.types.is_empty()
            && self.tags.is_empty())
    }
}

/// Whether classes need rules, and of which gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rules {
    /// They say which requests belong to a class.
    Needed(Protocol),
    /// In a scenario the sources say it.
    Optional(Protocol),
}

impl Rules {
    fn protocol(self) -> Protocol {
        let (Self::Needed(protocol) | Self::Optional(protocol)) = self;
        protocol
    }
}

/// What the judge is told of them.
pub(super) fn policy(classes: &[Class]) -> Vec<ServiceClass> {
    let mut all: Vec<ServiceClass> = Vec::new();
    for class in classes {
        let id = ClassId::named(&class.name);
        let known = match all.iter_mut().find(|known| known.id == id) {
            Some(known) => known,
            None => {
                all.push(ServiceClass::new(id, Weight::ONE));
                all.last_mut().expect("it has just been added")
            }
        };
        known.weight = class.weight.unwrap_or(known.weight);
        known.goal = class.goal.or(known.goal);
        known.importance = class.importance.unwrap_or(known.importance);
        known.floor = class.floor.unwrap_or(known.floor);
        known.ceiling = class.ceiling.unwrap_or(known.ceiling);
        known.turns = class.turns.unwrap_or(known.turns);
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
    check_shares(section, &classes);
    check_background(section, &classes);
    check_groups(section, &classes);
    classes
}

/// Floors leave room for one another and for ceilings.
fn check_shares(section: &mut Section<'_>, classes: &[Class]) {
    let classes = policy(classes);
    if classes.iter().any(|class| class.floor > class.ceiling) {
        section.complain("class", Complaint::new("has a `floor` above its `ceiling`"));
    }
    // The default class is there without a table, too.
    let is_default = |class: &ServiceClass| class.id == ClassId::DEFAULT;
    let default = if classes.iter().any(is_default) { 0.0 } else { Share::FLOOR.as_f64() };
    let floors = classes.iter().fold(default, |sum, class| sum + class.floor.as_f64());
    if !classes.is_empty() && floors > 1.0 {
        let why = format!("has floors of {floors} together, more than the whole");
        section.complain("class", Complaint::new(why).hint("a class without a stated floor has 0.01"));
    }
}

/// A background class has no part of the others' shares, and there are others.
fn check_background(section: &mut Section<'_>, classes: &[Class]) {
    let all = policy(classes);
    let is_background = |class: &ServiceClass| class.turns == Turns::Background;
    let has_share = |class: &&Class| {
        let bounds = [class.floor.is_some(), class.ceiling.is_some(), class.importance.is_some()];
        class.weight.is_some() || class.goal.is_some() || bounds.contains(&true)
    };
    for class in all.iter().filter(|class| is_background(class)) {
        let mut tables = classes.iter().filter(|table| ClassId::named(&table.name) == class.id);
        if let Some(table) = tables.find(has_share) {
            let why = format!("{:?} has background = true, and with it no weight, goal or bound", table.name);
            section.complain(
                "class",
                Complaint::new(why).hint("it gets what the others leave: drop one of both"),
            );
        }
    }
    let is_default = |class: &ServiceClass| class.id == ClassId::DEFAULT;
    if !all.is_empty() && all.iter().any(is_default) && all.iter().all(is_background) {
        let why = "has nothing but classes in the background, which would wait for nobody";
        section
            .complain("class", Complaint::new(why).hint("drop background = true where others are to yield"));
    }
}

/// Each class has a control group of its own.
fn check_groups(section: &mut Section<'_>, classes: &[Class]) {
    let named = || classes.iter().filter_map(|class| Some((class, class.cgroup.as_deref()?)));
    let pairs = named().enumerate().flat_map(|(at, one)| named().take(at).map(move |other| (other, one)));
    for ((one, group), (other, same)) in pairs.filter(|((_, a), (_, b))| are_nested(a, b)) {
        let how = if group == same { "have one cgroup" } else { "have cgroups within one another" };
        let why = format!("{:?} and {:?} {how}: {same}", one.name, other.name);
        section.complain("class", Complaint::new(why).hint("give the workers of each class their own group"));
    }
}

/// Whether a control group is another, or contains it.
pub(super) fn are_nested(one: &str, other: &str) -> bool {
    let is_in = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    is_in(one, other) || is_in(other, one)
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
        name: below.read_given("name", super::words::name).unwrap_or_default(),
        weight: below.read_given("weight", weight),
        goal: below.read_given("goal", goal),
        importance: below.read_given("importance", |value| number(value, 0, 255)).map(|it: u32| it as u8),
        floor: below.read_given("floor", share),
        ceiling: below.read_given("ceiling", share),
        turns: below.read_given("background", background),
        cgroup: below.read_given("cgroup", |value| cgroup(value, rules)),
        tenant: below.read_given("tenant", |value| tenant(value, rules)),
        paths: below.read_given("path", |value| some(raw::texts(value)?, path)).unwrap_or_default(),
        hosts: below.read_given("host", |value| some(raw::texts(value)?, host)).unwrap_or_default(),
        fields: below.read_given("header", |value| some(raw::texts(value)?, field)).unwrap_or_default(),
        networks: below.read_given("network", some_networks).unwrap_or_default(),
        users: below.read_given("user", names).unwrap_or_default(),
        databases: below.read_given("database", names).unwrap_or_default(),
        applications: below.read_given("application", names).unwrap_or_default(),
        types: below.read_given("type", types).unwrap_or_default(),
        tags: below.read_given("tag", |value| some(raw::texts(value)?, tag)).unwrap_or_default(),
    };
    refuse_keys_of_others(&mut below, rules.protocol());
    if below.has_complained_of(&DECIDES, errors_before) {
        return None;
    }
    let is_same = |other: &&Class| other.name == class.name;
    if class.name == ClassId::DEFAULT_NAME && class.has_rule() {
        let why = "is the class of all that no rule fits, and has none itself";
        below.complain("name", Complaint::new(why).hint("give it another name, or only a weight"));
    } else if class.name != ClassId::DEFAULT_NAME && !class.has_rule() && matches!(rules, Rules::Needed(_)) {
        let why = format!("nothing says which requests {:?} is for", class.name);
        let hint = match rules.protocol() {
            Protocol::Http => "write `path`, `host`, `header` or `network`, or call it \"default\"",
            Protocol::Postgres | Protocol::Mysql => {
                "write `user`, `database`, `application`, `network`, `type` or `tag`, or call it \"default\""
            }
        };
        below.complain("name", Complaint::new(why).hint(hint));
    }
    let others = || before.iter().filter(is_same);
    for (key, is_twice) in [
        ("weight", class.weight.is_some() && others().any(|other| other.weight.is_some())),
        ("goal", class.goal.is_some() && others().any(|other| other.goal.is_some())),
        ("importance", class.importance.is_some() && others().any(|other| other.importance.is_some())),
        ("floor", class.floor.is_some() && others().any(|other| other.floor.is_some())),
        ("ceiling", class.ceiling.is_some() && others().any(|other| other.ceiling.is_some())),
        ("cgroup", class.cgroup.is_some() && others().any(|other| other.cgroup.is_some())),
        ("tenant", class.tenant.is_some() && others().any(|other| other.tenant.is_some())),
        ("background", class.turns.is_some() && others().any(|other| other.turns.is_some())),
    ] {
        if is_twice {
            let why = format!("another table of {:?} says the {key}", class.name);
            below.complain(key, Complaint::new(why).hint("leave one of them out"));
        }
    }
    if let Some(earlier) = before.iter().find(|earlier| earlier.covers(&class)) {
        let why = format!("never decides: a table of {:?} before it fits all that it fits", earlier.name);
        below.complain(
            "name",
            Complaint::new(why).hint("write the narrower table first, or leave this one out"),
        );
    }
    Some(class)
}

fn refuse_keys_of_others(below: &mut Section<'_>, protocol: Protocol) {
    let (service, name) = match protocol {
        Protocol::Http => ("a database", "postgres"),
        Protocol::Postgres | Protocol::Mysql => ("HTTP", "http"),
    };
    for key in CLASS.iter().map(|field| field.key).filter(|key| !is_class_key_of(protocol, key)) {
        if below.has(key) {
            let complaint = Complaint::new(format!("belongs to a class of a gate for {service}"));
            let hint = format!("leave it out; only with such as protocol = {name:?} it has a meaning");
            below.complain(key, complaint.hint(hint));
        }
    }
}

/// The keys that say which requests a class is for, and what it is called.
const DECIDES: [&str; 10] =
    ["name", "path", "host", "header", "network", "user", "database", "application", "type", "tag"];

fn weight(value: &DeValue<'_>) -> Result<Weight, Complaint> {
    Weight::new(raw::real(value)?).ok_or_else(|| Complaint::new("must be from 0.001 to 1000"))
}

fn background(value: &DeValue<'_>) -> Result<Turns, Complaint> {
    Ok(if raw::boolean(value)? { Turns::Background } else { Turns::Shared })
}

/// `network`, `user` or `header NAME`.
fn tenant(value: &DeValue<'_>, rules: Rules) -> Result<TenantBy, Complaint> {
    let text = raw::some_text(value)?;
    let (by, hint) = match rules {
        Rules::Optional(_) => {
            let why = "has no meaning in a scenario, whose requests have no tenants";
            return Err(Complaint::new(why).hint("leave it out"));
        }
        Rules::Needed(Protocol::Http) => {
            let name = text.strip_prefix("header ").map(|name| field(name.trim())).transpose()?;
            let by = name.filter(|field| field.value.is_none()).map(|field| TenantBy::Header(field.name));
            (by, "write \"network\", or such as \"header x-tenant\"")
        }
        Rules::Needed(Protocol::Postgres | Protocol::Mysql) => {
            ((text == "user").then_some(TenantBy::User), "write \"user\" or \"network\"")
        }
    };
    let by = by.or_else(|| (text == "network").then_some(TenantBy::Network));
    by.ok_or_else(|| Complaint::new(format!("{text:?} is nothing that tenants are known by here")).hint(hint))
}

/// A path from the root of the hierarchy of control groups on, without the hierarchy's own.
fn cgroup(value: &DeValue<'_>, rules: Rules) -> Result<String, Complaint> {
    const HINT: &str =
        "write it as /proc/PID/cgroup of a worker has it, such as \"/site.slice/gold.service\"";
    if matches!(rules, Rules::Optional(_)) {
        let why = "has no meaning in a scenario, whose service has no control groups";
        return Err(Complaint::new(why).hint("leave it out"));
    }
    let text = raw::some_text(value)?;
    let wrong = |why: &str| Err(Complaint::new(format!("{text:?} {why}")).hint(HINT));
    let path = text.trim_matches('/');
    if path.is_empty() {
        return wrong("is the group of all processes, which has no weight");
    }
    if text.starts_with("/sys/") {
        return wrong("isn't a path within the hierarchy of control groups");
    }
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && name.len() <= GROUP_BYTES_MAX;
    if text.chars().any(char::is_control) || text.len() > GROUP_PATH_MAX || !path.split('/').all(is_name) {
        return wrong("isn't the path of a control group");
    }
    Ok(format!("/{path}"))
}

fn share(value: &DeValue<'_>) -> Result<Share, Complaint> {
    Share::new(raw::real(value)?).ok_or_else(|| Complaint::new("must be from 0.001 to 1"))
}

/// `50ms`, `p95 150ms`, `wait 20ms` or `100/s`.
fn goal(value: &DeValue<'_>) -> Result<ClassGoal, Complaint> {
    const HINT: &str = "write such as \"50ms\" (the mean), \"p95 150ms\", \"wait 20ms\" or \"100/s\"";
    let text = raw::some_text(value)?;
    let wrong = || Complaint::new(format!("{text:?} isn't a goal")).hint(HINT);
    if let Some(rate) = text.strip_suffix("/s") {
        let millihertz = rate.trim().parse::<f64>().map_err(|_| wrong())? * 1e3;
        let is_possible = (1.0..=1e12).contains(&millihertz);
        let goal = ClassGoal::Throughput { millihertz: millihertz.round() as u64 };
        return if is_possible { Ok(goal) } else { Err(wrong()) };
    }
    let (measure, rest) = match text.strip_prefix("wait ") {
        Some(rest) => (Measure::Wait, rest),
        None => (Measure::Response, text.as_str()),
    };
    let (statistic, time) = match rest.strip_prefix('p').and_then(|rest| rest.split_once(' ')) {
        Some((part, time)) => {
            let part = part.parse().ok().filter(|part| (1..=99).contains(part)).ok_or_else(wrong)?;
            (Statistic::Percentile(part), time)
        }
        None => (Statistic::Mean, rest),
    };
    let most = raw::some_time(&DeValue::String(time.trim().into())).map_err(|_| wrong())?;
    Ok(ClassGoal::Delay { measure, statistic, most })
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

/// Names, with a `*` at most at the end.
fn names(value: &DeValue<'_>) -> Result<Vec<String>, Complaint> {
    some(raw::texts(value)?, |text| {
        if text.len() > NAME_BYTES_MAX || text.contains('\0') {
            return Err(Complaint::new(format!("has a name of more than {NAME_BYTES_MAX} bytes")));
        }
        if text.strip_suffix('*').unwrap_or(text).contains('*') {
            let hint = "* stands for the rest of a name, and only at its end";
            return Err(Complaint::new(format!("{text:?} has a * before its end")).hint(hint));
        }
        Ok(text.to_owned())
    })
}

/// Names of types, which may have commas.
fn types(value: &DeValue<'_>) -> Result<Vec<String>, Complaint> {
    let texts = match value {
        DeValue::Array(values) => {
            values.iter().map(|value| raw::some_text(value.get_ref())).collect::<Result<_, _>>()?
        }
        one => vec![raw::some_text(one)?],
    };
    some(texts, |text| statement_name(text.to_owned()))
}

fn tag(text: &str) -> Result<TagRule, Complaint> {
    let hint = "write a key and a value, such as \"route=/report\"";
    let wrong = || Complaint::new(format!("{text:?} isn't a tag")).hint(hint);
    let (key, value) =
        text.split_once('=').map(|(key, value)| (key.trim(), value.trim())).ok_or_else(wrong)?;
    let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.%".contains(&byte);
    if key.is_empty() || value.is_empty() || !key.bytes().all(is_key) || text.len() > FIELD_BYTES_MAX {
        return Err(wrong());
    }
    if value.len() > TAG_BYTES_MAX {
        return Err(Complaint::new(format!(
            "has a value of more than {TAG_BYTES_MAX} bytes, of which no more are read"
        )));
    }
    if matches!(key, "traceparent" | "tracestate") {
        return Err(Complaint::new(format!("{key} differs with every request")).hint(hint));
    }
    Ok(TagRule { key: key.to_owned(), value: value.to_owned() })
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
