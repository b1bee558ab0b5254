//! The world as it is run: every value in a type that cannot be wrong, everything that must fit together
//! checked.

use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::Examine;
use crate::address::Address;
use crate::complaint::Complaint;
use crate::error::{Error, Position};
use crate::raw::{self, ADMIN, GATE, LOG, PROCESS, Section, hint_for_unknown, unknown_key};
use crate::variables::{Values, Variables};

mod auth;
mod class;
mod gate;
mod http;
mod mysql;
mod policy;
mod postgres;
mod rejection;
mod tls;
mod types;
mod words;

pub use auth::{Auth, AuthMethod, AuthQuery, ChannelBinding};
pub(crate) use auth::{CHANNEL_BINDINGS, METHODS};
pub use class::{Class, FieldRule, TagRule, TenantBy};
pub use gate::read_simulated;
pub use gate::{Gate, Mode, Service, Trace, TraceFull};
pub(crate) use gate::{MODES, PROTOCOLS, TRACE_FULL};
pub(crate) use http::{EGRESSES, KERNEL_BANDS, TYPE_FIELDS, VERSIONS, rate_text};
pub use http::{
    Egress, HealthCheck, Http, HttpVersion, KernelBands, Network, Route, TypeField, UPLINKS, Uplink,
    bits_per_second,
};
pub use mysql::{Mysql, UserQuery};
pub use policy::{Connections, LongLimit};
pub(crate) use postgres::{ON_DISCONNECT, POOLINGS};
pub use postgres::{OnDisconnect, Pooling, Postgres};
pub(crate) use rejection::TUNINGS;
pub use rejection::rejection_name;
pub use tls::{Identity, Tls, TlsMode, UpstreamTls, UpstreamTlsMode};
pub(crate) use tls::{MODES as TLS_MODES, UPSTREAM_MODES};
pub use types::OwnTarget;

const ADMIN_PORT: u16 = 6433;

/// A whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    /// The admin listener.
    pub admin: Admin,
    /// The log.
    pub log: Log,
    /// How long clients are served on once a successor accepts new ones.
    pub handover_timeout: Duration,
    /// The most megabytes that clients' messages may take together; `None`: by the memory that there is.
    pub memory_max: Option<u32>,
    /// The gates, at least one, in the order of the file.
    pub gates: Vec<Gate>,
}

/// The admin listener; by its own default there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admin {
    /// Where it listens (TCP only), if anywhere.
    pub listen: Option<Address>,
    /// The host names under which it answers there, beside addresses, `localhost` and the name in `listen`.
    pub names: Vec<String>,
    /// The most types of a gate with metrics of their own.
    pub metrics_types_max: u32,
    /// The Unix socket where it also listens, and takes changes.
    pub socket: Option<PathBuf>,
    /// The file mode of the admin socket.
    pub socket_mode: SocketMode,
    /// The file with the token that allows changes over TCP.
    pub token_file: Option<PathBuf>,
}

/// The users that may open a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketMode {
    /// The owner only: 0600.
    #[default]
    Owner,
    /// The owner and the group: 0660.
    Group,
}

/// The log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// How a line is written.
    pub format: LogFormat,
    /// What is written.
    pub level: LogLevel,
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The least important level that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the levels of every log")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

pub(crate) const FORMATS: &[(&str, LogFormat)] = &[("text", LogFormat::Text), ("json", LogFormat::Json)];
pub(crate) const LEVELS: &[(&str, LogLevel)] = &[
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];
pub(crate) const SOCKET_MODES: &[(&str, SocketMode)] =
    &[("0600", SocketMode::Owner), ("0660", SocketMode::Group)];

impl Admin {
    /// The admin listener of a configuration that says nothing of it, as where flags make the gate.
    pub fn unless_told() -> Self {
        let (nothing, mut errors) = (DeTable::new(), Vec::new());
        read_admin(&mut Section::open("admin".to_owned(), &nothing, ADMIN, ("", 0), &mut errors))
    }
}

impl World {
    /// Reads a world out of TOML. What is wrong goes to `errors`; if there is any, the world isn't to be
    /// used.
    pub(crate) fn read(
        text: &str,
        errors: &mut Vec<Error>,
        examine: Examine<'_>,
        variables: Variables<'_>,
    ) -> Self {
        let values = Values::of(text, variables, raw::takes_numbers);
        let (mut document, syntax) = DeTable::parse_recoverable(text);
        // After an error of syntax the rest is a guess of the parser's, and errors in a guess only confuse.
        for error in &syntax {
            let position = Some(Position::of(text, error.span().map_or(0, |span| span.start)));
            // The parser stumbles several times over one slip.
            let is_same_line = |known: &Error| known.position.map(|at| at.line) == position.map(|at| at.line);
            if !errors.iter().any(is_same_line) {
                let why = format!("isn't TOML: {}", error.message());
                let is_of_form = why.contains("expected");
                let hint = is_of_form.then(|| "a line is `key = value`, and texts are in quotes".to_owned());
                errors.push(Error { position, hint, ..Error::new(why) });
            }
        }
        let mut unfilled = Vec::new();
        values.fill_in(document.get_mut(), &mut |start, error| {
            unfilled.push(Error { position: Some(Position::of(text, start)), ..error });
        });
        let mut found = Vec::new();
        let world = Self::read_document(&document, (text, examine), &mut found);
        if syntax.is_empty() {
            // What else is wrong with such a text would only confuse.
            found.retain(|error| unfilled.iter().all(|it| it.position != error.position));
            found.iter_mut().for_each(|error| values.add_to(error));
            found.append(&mut unfilled);
        } else {
            // A file that a gate names is missing, whatever the rest means.
            let mut guessed = Vec::new();
            Self::read_document(&document, (text, &|_| Vec::new()), &mut guessed);
            found.retain(|error| !guessed.contains(error));
        }
        errors.append(&mut found);
        world
    }

    fn read_document(
        document: &Spanned<DeTable<'_>>,
        (text, examine): (&str, Examine<'_>),
        errors: &mut Vec<Error>,
    ) -> Self {
        let top = document.get_ref();
        const SECTIONS: [&str; 4] = ["admin", "log", "process", "gate"];
        for key in top.keys().filter(|key| !SECTIONS.contains(&&**key.get_ref())) {
            let belongs_to_gate = GATE.iter().any(|field| field.key == key.get_ref());
            let hint = if belongs_to_gate {
                Some(format!("`{}` belongs below a [[gate]]", key.get_ref()))
            } else {
                hint_for_unknown(key.get_ref(), &SECTIONS)
            };
            errors.push(unknown_key(key.get_ref(), Position::of(text, key.span().start), hint));
        }
        let empty = DeTable::new();
        let (admin, admin_at) = single_table(top, "admin", &empty, text, errors);
        let admin =
            read_admin(&mut Section::open("admin".to_owned(), admin, ADMIN, (text, admin_at), errors));
        let (log, log_at) = single_table(top, "log", &empty, text, errors);
        let log = read_log(&mut Section::open("log".to_owned(), log, LOG, (text, log_at), errors));
        let (process, process_at) = single_table(top, "process", &empty, text, errors);
        let mut process = Section::open("process".to_owned(), process, PROCESS, (text, process_at), errors);
        let handover_timeout = process.read("handover_timeout", raw::at_most_a_day);
        let memory_max = process.read("memory_max", raw::memory);
        let gates = gate::read_all(top, &admin, (text, examine), errors);
        Self { admin, log, handover_timeout, memory_max, gates }
    }
}

/// The table `[key]`, or an empty one where it is absent or isn't a table; and where it stands.
pub fn single_table<'a>(
    top: &'a DeTable<'a>,
    key: &str,
    empty: &'a DeTable<'a>,
    text: &str,
    errors: &mut Vec<Error>,
) -> (&'a DeTable<'a>, usize) {
    let Some(value) = top.get(key) else { return (empty, 0) };
    let start = value.span().start;
    if let DeValue::Table(table) = value.get_ref() {
        return (table, start);
    }
    errors.push(Error {
        position: Some(Position::of(text, start)),
        key: Some(key.to_owned()),
        hint: Some(format!("write it once, as [{key}] with its keys below")),
        ..Error::new("isn't a table")
    });
    (empty, start)
}

fn read_admin(section: &mut Section<'_>) -> Admin {
    let listen = section.read("listen", |value| match raw::text(value)?.as_str() {
        "none" => Ok(None),
        text => Address::parse(text, ADMIN_PORT).map(Some),
    });
    if matches!(listen, Some(Address::Unix(_))) {
        let hint = "write \"host:port\" or \"none\" here, and the path as `socket`";
        section.complain("listen", Complaint::new("is a Unix socket").hint(hint));
    }
    let path = |value: &DeValue<'_>| match raw::some_text(value)?.as_str() {
        "none" => Ok(None),
        text => Ok(Some(PathBuf::from(text))),
    };
    Admin {
        listen,
        names: section.read("names", raw::users),
        metrics_types_max: section.read("metrics_types_max", |value| number(value, 0, 1000)),
        socket: section.read("socket", admin_socket),
        socket_mode: section.read("socket_mode", |value| raw::choice(value, SOCKET_MODES)),
        token_file: section.read("token_file", path),
    }
}

fn admin_socket(value: &DeValue<'_>) -> Result<Option<PathBuf>, Complaint> {
    let text = raw::some_text(value)?;
    let path = text.strip_prefix("unix:").unwrap_or(&text);
    if path == "none" {
        return Ok(None);
    }
    let Address::Unix(path) = Address::parse(&format!("unix:{path}"), ADMIN_PORT)? else { return Ok(None) };
    Ok(Some(path))
}

fn read_log(section: &mut Section<'_>) -> Log {
    Log {
        format: section.read("format", |value| raw::choice(value, FORMATS)),
        level: section.read("level", |value| raw::choice(value, LEVELS)),
    }
}

/// A whole number within these bounds.
pub fn number(value: &DeValue<'_>, least: u32, most: u32) -> Result<u32, Complaint> {
    let number = raw::integer(value, u64::from(least)..=u64::from(most))?;
    Ok(u32::try_from(number).unwrap_or(most))
}
