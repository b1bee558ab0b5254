//! Request types that have a target of their own, by their names.

use admission::{Goal, Policy, Rejection, RequestType, Targets};
use toml::Spanned;
use toml::de::DeValue;

use super::http::{PATH_BYTES_MAX, TYPE_BYTES_MAX};
use super::{Http, TypeField};
use crate::complaint::Complaint;
use crate::protocol::Protocol;
use crate::raw::{self, OWN_TARGET, Section, hint_for_unknown};

/// The longest name at a gate for a database, in bytes: a database, and the longest label of a statement.
const STATEMENT_BYTES_MAX: usize = 600;
const HINT: &str = "write [[gate.type]] with a `name` below, and such as target = \"100ms\"";

/// A type with a target of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnTarget {
    /// The type's name, as tables and metrics show it.
    pub name: String,
    /// Its target, which takes the place of the gate's.
    pub goal: Goal,
}

/// What a type may be called.
#[derive(Clone, Copy, Debug)]
pub(super) enum Names<'a> {
    /// The names that a gate for this protocol gives.
    Of(Protocol),
    /// The names in a scenario; there are no others.
    Among(&'a [&'a str]),
}

/// What the judge is told: the policy with the targets of those types whose key is known by their name.
pub(super) fn policy(
    policy: &Policy,
    targets: &[OwnTarget],
    key: impl Fn(&str) -> Option<RequestType>,
) -> Policy {
    let mut policy = policy.clone();
    if let Rejection::Target(Targets { types, .. }) = &mut policy.rejection {
        *types = targets.iter().filter_map(|target| Some((key(&target.name)?, target.goal))).collect();
    }
    policy
}

/// Reads all of a gate.
pub(super) fn read(section: &mut Section<'_>, names: Names<'_>) -> Vec<OwnTarget> {
    let Some(tables) = section.tables("type", "[[gate.type]]") else { return Vec::new() };
    let most = Targets::TYPES_MAX;
    if tables.len() > most {
        let complaint = Complaint::new(format!("there are more than {most} tables"));
        section.complain("type", complaint.hint("`target` is for all that have no table"));
        return Vec::new();
    }
    let mut targets: Vec<OwnTarget> = Vec::new();
    for table in tables {
        let target = read_one(section, table, &targets, names);
        targets.extend(target);
    }
    targets
}

fn read_one(
    section: &mut Section<'_>,
    table: &Spanned<DeValue<'_>>,
    before: &[OwnTarget],
    names: Names<'_>,
) -> Option<OwnTarget> {
    let errors_before = section.error_count();
    let mut below = section.below("type", table, OWN_TARGET, HINT)?;
    if !below.has("name") {
        let hint = "say which type it is, as `gatekeeper types --json` shows it";
        below.complain("name", Complaint::new("is missing").hint(hint));
    }
    let name = below.read_given("name", |value| name(raw::some_text(value)?, names));
    let goal = Goal {
        mean: below.read_given("target", raw::some_time),
        p95: below.read_given("target_p95", raw::some_time),
    };
    if !(below.has("target") || below.has("target_p95")) {
        let hint = "add the mean response time to hold, such as target = \"100ms\", or target_p95";
        below.complain("target", Complaint::new("is missing").hint(hint));
    }
    if name.as_ref().is_some_and(|name| before.iter().any(|other| other.name == *name)) {
        let hint = "write both targets of a type into one";
        below.complain("name", Complaint::new("another table is for this type").hint(hint));
    }
    (below.error_count() == errors_before).then_some(OwnTarget { name: name?, goal })
}

fn name(name: String, names: Names<'_>) -> Result<String, Complaint> {
    match names {
        Names::Of(Protocol::Http) => http_name(name),
        Names::Of(Protocol::Postgres | Protocol::Mysql) => statement_name(name),
        Names::Among(all) if all.contains(&name.as_str()) => Ok(name),
        Names::Among(all) => {
            let hint = hint_for_unknown(&name, all);
            Err(Complaint { hint, ..Complaint::new("no type of this scenario is called so") })
        }
    }
}

fn http_name(name: String) -> Result<String, Complaint> {
    let most = if is_template(&name) { PATH_BYTES_MAX } else { TYPE_BYTES_MAX };
    if name.len() > most || !name.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        let hint = format!(
            "write at most {most} printable ASCII characters; a path has its method before it: \"GET /…\""
        );
        return Err(Complaint::new("can't be a type's name").hint(hint));
    }
    Ok(name)
}

/// Whether it is a method and a path.
fn is_template(name: &str) -> bool {
    name.split_once(' ').is_some_and(|(_, path)| path.starts_with('/'))
}

/// `database: label`, the label not cut.
pub(super) fn statement_name(name: String) -> Result<String, Complaint> {
    let hint = "write it as `gatekeeper types --json` shows it: the database, a colon and the route tag or the statement's shape, as \"shop: /cart\"";
    match name.split_once(": ") {
        _ if name.len() > STATEMENT_BYTES_MAX => {
            Err(Complaint::new(format!("has more than {STATEMENT_BYTES_MAX} bytes"))
                .hint("give the statement a route tag"))
        }
        Some((_, label)) if label.contains("… #") => {
            Err(Complaint::new("is cut, so that nobody can tell which statement it is")
                .hint("give the statement a route tag, and write that"))
        }
        Some((database, label)) if !database.is_empty() && !label.is_empty() => Ok(name),
        _ => Err(Complaint::new("doesn't say of which database it is").hint(hint)),
    }
}

/// Of types that only a route could name, one has to.
pub(super) fn check_named(section: &mut Section<'_>, targets: &[OwnTarget], http: &Http) {
    if http.type_field == TypeField::Use {
        return;
    }
    let names: Vec<&str> = http.routes.iter().map(|route| route.name.as_str()).collect();
    let is_nothing = |name: &str| !is_template(name) && !names.contains(&name);
    for OwnTarget { name, .. } in targets.iter().filter(|own| is_nothing(&own.name)) {
        let hint = hint_for_unknown(name, &names);
        let hint =
            hint.unwrap_or_else(|| "write a [[gate.route]] of this name, or type_field = \"use\"".to_owned());
        let why = format!("nothing is called {name:?}: no route, and the application isn't asked");
        section.complain("type", Complaint::new(why).hint(hint));
    }
}
