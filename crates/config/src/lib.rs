//! Gatekeeper's configuration: text in, a valid [`World`] or every error out.
//!
//! Three steps, each in its own module: `raw` knows the keys (with doc, unit, default and reason side by
//! side) and reads typed values out of TOML; [`World`] is what is left when everything has been checked, in
//! types that cannot be wrong; [`Errors`] holds whatever was found on the way, all of it, each with its
//! line, its key, the reason and what to do. [`effective()`] writes a world back as TOML, and
//! [`reference()`] writes the keys as a page of documentation.
//!
//! Nothing here does I/O beyond reading the one file, and the variables of the environment that it names.

use std::io::Read as _;
use std::path::Path;

mod address;
mod checked;
mod complaint;
mod effective;
mod error;
mod protocol;
mod raw;
pub mod reader;
mod reference;
mod reload;
mod schema;
mod variables;

pub use address::Address;
pub use checked::{
    Admin, Auth, AuthMethod, AuthQuery, ChannelBinding, Class, Connections, Egress, FieldRule, Gate,
    HealthCheck, Http, HttpVersion, Identity, KernelBands, Log, LogFormat, LogLevel, LongLimit, Mode, Mysql,
    Network, OnDisconnect, OwnTarget, Pooling, Postgres, Route, Service, SocketMode, TagRule, TenantBy, Tls,
    TlsMode, Trace, TraceFull, TypeField, UPLINKS, Uplink, UpstreamTls, UpstreamTlsMode, UserQuery, World,
    bits_per_second, rejection_name,
};
pub use effective::{Row, capacity_text, effective, rows};
pub use error::{Error, Errors, Origin, Position};
pub use protocol::Protocol;
pub use raw::is_of_laboratory;
pub use raw::{
    ADMIN, CLASS, COMMON, Field, FieldDefault, Form, GATE, HTTP, LOG, OWN_TARGET, POSTGRES, PROCESS, ROUTE,
};
pub use reference::{example, reference};
pub use reload::{Change, Reload, reload};
pub use schema::schema;
pub use variables::Variables;

/// The longest config file that is read, in bytes: a thousand gates with every key.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads and checks a file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(path: &Path) -> Result<World, Errors> {
    load_with(path, &|_| Vec::new())
}

/// What is wrong with a file that a key names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The key.
    pub key: &'static str,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub hint: Option<String>,
}

/// Looks at the files that a gate names, which is nothing that this crate does. A key that is wrong has its
/// default.
pub type Examine<'a> = &'a dyn Fn(&Gate) -> Vec<Fault>;

/// Reads and checks a file, and the files that it names.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load_with(path: &Path, examine: Examine<'_>) -> Result<World, Errors> {
    let origin = Origin::File(path.to_owned());
    let read = std::fs::File::open(path).and_then(|file| {
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
        Ok(text)
    });
    match read {
        Ok(text) if text.len() as u64 > FILE_BYTES_MAX => {
            Err(Errors::one(origin, Error::new(format!("is longer than {FILE_BYTES_MAX} bytes"))))
        }
        Ok(text) => parse_with(origin, &text, examine, &|name| std::env::var(name).ok()),
        Err(error) => Err(Errors::one(origin, Error::new(format!("cannot be read: {error}")))),
    }
}

/// Checks the text of a config file.
///
/// # Errors
/// Everything that is wrong with it, in the order of the lines.
pub fn parse(origin: Origin, text: &str) -> Result<World, Errors> {
    parse_in(origin, text, &|_| None)
}

/// Checks the text of a config file, in an environment that has these variables.
///
/// # Errors
/// Everything that is wrong with it, in the order of the lines.
pub fn parse_in(origin: Origin, text: &str, variables: Variables<'_>) -> Result<World, Errors> {
    parse_with(origin, text, &|_| Vec::new(), variables)
}

fn parse_with(
    origin: Origin,
    text: &str,
    examine: Examine<'_>,
    variables: Variables<'_>,
) -> Result<World, Errors> {
    let mut errors = Vec::new();
    let world = World::read(text, &mut errors, examine, variables);
    if errors.is_empty() { Ok(world) } else { Err(Errors::new(origin, errors)) }
}

/// The first gate of a world with some of its keys as typed on the command line, and all others as they are.
///
/// # Errors
/// Everything that is wrong with it, by the names of the flags.
pub fn amended(world: &World, gate: &[(&str, String)]) -> Result<World, Errors> {
    let is_given = |key: &str| gate.iter().any(|(given, _)| *given == key);
    let name = world.gates.first().map(|gate| gate.name.as_str());
    let mut text = "[[gate]]\n".to_owned();
    for row in rows(world).into_iter().filter(|row| row.gate.as_deref() == name && row.gate.is_some()) {
        // Half of the connections unless it is told, and so it must follow them.
        let follows = row.key == "pinned_max" && is_given("connections");
        if !is_given(row.key) && !follows {
            text += &format!("{} = {}\n", row.key, row.value);
        }
    }
    for (key, value) in gate {
        let form = GATE.iter().find(|field| field.key == *key).map_or(Form::Any, |field| field.form);
        text += &format!("{key} = {}\n", raw::literal(form, value));
    }
    parse(Origin::CommandLine, &text).map_err(hinting_at_flags)
}

fn hinting_at_flags(mut errors: Errors) -> Errors {
    for hint in errors.list.iter_mut().filter_map(|error| error.hint.as_mut()) {
        *hint = as_flags(hint);
    }
    errors
}

/// A hint that names keys as in a file, with flags: `--connections=5` for `connections = 5`.
fn as_flags(hint: &str) -> String {
    let mut parts = hint.split(" = ");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_of_key = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let start = text.trim_end_matches(is_of_key).len();
        if GATE.iter().any(|field| field.key == &text[start..]) {
            text = format!("{}--{}={part}", &text[..start], text[start..].replace('_', "-"));
        } else {
            text = format!("{text} = {part}");
        }
    }
    text
}

/// Reads a capacity out of the text that the key `capacity` takes.
///
/// # Errors
/// What is wrong with it, and what to write instead.
pub fn capacity(text: &str) -> Result<admission::Capacity, String> {
    raw::capacity(&toml::de::DeValue::String(text.into()), raw::Before::Service).map_err(|complaint| {
        match complaint.hint {
            Some(hint) => format!("{}; {hint}", complaint.why),
            None => complaint.why,
        }
    })
}

/// Checks a world that is given on the command line: the keys of its only gate, and where the admin
/// listener is.
///
/// # Errors
/// Everything that is wrong with it, by the names of the flags.
pub fn from_flags(gate: &[(&str, String)], admin: Option<&str>) -> Result<World, Errors> {
    from_flags_with(gate, admin, &|_| Vec::new())
}

/// Checks a world that is given on the command line, and the files that it names.
///
/// # Errors
/// Everything that is wrong with the world or the files, by the names of the flags.
pub fn from_flags_with(
    gate: &[(&str, String)],
    admin: Option<&str>,
    examine: Examine<'_>,
) -> Result<World, Errors> {
    let mut text = String::new();
    if let Some(listen) = admin {
        text += &format!("[admin]\nlisten = {}\n", raw::literal(Form::Text, listen));
    }
    text += "[[gate]]\n";
    for (key, value) in gate {
        let form = GATE.iter().find(|field| field.key == *key).map_or(Form::Any, |field| field.form);
        text += &format!("{key} = {}\n", raw::literal(form, value));
    }
    parse_with(Origin::CommandLine, &text, examine, &|_| None).map_err(hinting_at_flags)
}
