//! The keys of a configuration: what each takes, its default, and why, all in one place.
//!
//! The default of a key is the text that stands here: the reader parses it when the key is absent, and the
//! reference page prints it. So the two can't disagree.
//!
//! Why not serde: it stops at the first error and can't say of an unknown key what was meant. A person who
//! edits a file wants to hear everything at once, with lines. The price is one call per key in `checked`.

use toml::de::DeValue;

use crate::protocol::Protocol;

mod class;
mod gate;
mod http;
mod policy;
mod postgres;
mod section;
mod values;

pub use class::CLASS;
pub(crate) use class::is_class_key_of;
pub use gate::{COMMON, GATE};
pub use http::{HTTP, ROUTE};
pub use policy::OWN_TARGET;
pub use postgres::POSTGRES;
pub(crate) use postgres::is_of_mysql;
pub(crate) use section::{Before, literal};
pub use section::{Section, Yardsticks, hint_for_unknown, unknown_key};
pub(crate) use values::CONTROLLERS;
pub(crate) use values::{aging, capacity, laboratory, memory, real, users};
pub use values::{
    amount, amount_or_steps, at_most_a_day, boolean, bound, choice, counts, curve, integer, list, long_time,
    some_text, some_time, steps, text, texts, time_or_none, times, weights,
};

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub key: &'static str,
    /// How a value is understood that was typed without quotes, as flags are.
    pub form: Form,
    /// What it takes, with the unit.
    pub takes: &'static str,
    /// What holds when it is absent.
    pub default: FieldDefault,
    /// What it does.
    pub doc: &'static str,
    /// Why that default.
    pub reason: &'static str,
    /// Whether a running gate could take a new value without being restarted.
    pub reloadable: bool,
}

/// How a value is understood that was typed without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A text, whatever it looks like: an address, a name, a path.
    Text,
    /// The number or boolean that it looks like, or else a text.
    Any,
    /// Tables, which no flag can hold.
    Tables,
}

/// What holds when a key is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldDefault {
    /// This TOML value.
    Value(&'static str),
    /// One for a gate for PostgreSQL, one for MySQL, one for HTTP.
    Each(&'static str, &'static str, &'static str),
    /// Something derived, in words.
    Derived(&'static str),
    /// Nothing: the key must be there.
    Required,
}

impl Field {
    /// Its default as a TOML value.
    pub(crate) fn default_value(&self, protocol: Protocol) -> Option<DeValue<'static>> {
        let text = match (self.default, protocol) {
            (Value(text), _)
            | (Each(text, ..), Protocol::Postgres)
            | (Each(_, text, _), Protocol::Mysql)
            | (Each(_, _, text), Protocol::Http) => text,
            (Derived(_) | Required, _) => return None,
        };
        let value = DeValue::parse(text).expect("a test parses every default");
        Some(value.into_inner())
    }
}

/// Whether a key of some table takes numbers or booleans.
pub(crate) fn takes_numbers(key: &str) -> bool {
    let tables = [ADMIN, LOG, PROCESS, GATE, CLASS, ROUTE, OWN_TARGET];
    tables.into_iter().flatten().any(|field| field.key == key && field.form == Form::Any)
}

use FieldDefault::{Derived, Each, Required, Value};

/// The keys of `[admin]`.
pub const ADMIN: &[Field] = &[
    Field {
        key: "listen",
        form: Form::Text,
        takes: "`\"host:port\"` or `\"none\"`",
        default: Value("\"127.0.0.1:6433\""),
        doc: "Where `/metrics`, `/healthz`, `/readyz`, `/status` and `/types` are served over HTTP. Changes are refused there without a `token_file`.",
        reason: "Loopback, since it asks for no password, and request types show the shape of your statements (never a literal).",
        reloadable: false,
    },
    Field {
        key: "names",
        form: Form::Text,
        takes: "a list of host names, as `[\"gatekeeper.internal\"]`",
        default: Value("[]"),
        doc: "The host names under which `listen` answers, beside every IP address, `localhost` and the name in `listen`. A request for another name gets 421.",
        reason: "A web page can point its own name at the listener's address and read the answers (DNS rebinding).",
        reloadable: false,
    },
    Field {
        key: "metrics_types_max",
        form: Form::Any,
        takes: "0 to 1000",
        default: Value("100"),
        doc: "The most request types of a gate that have series of their own in `/metrics`, about 50 for each. All others count for the type `other`.",
        reason: "Enough for the types that matter, and a scrape of some hundred kilobytes.",
        reloadable: true,
    },
    Field {
        key: "socket",
        form: Form::Text,
        takes: "an absolute path, as `\"/run/gatekeeper/admin.sock\"` or `\"unix:/path\"`, or `\"none\"`",
        default: Value("\"none\""),
        doc: "A Unix socket with the same pages, where changes are taken too (`gatekeeper calibrate`). A program that may open it may change a gate.",
        reason: "The operator decides where a service may write (with systemd: `RuntimeDirectory=gatekeeper`).",
        reloadable: false,
    },
    Field {
        key: "socket_mode",
        form: Form::Text,
        takes: "`\"0600\"` or `\"0660\"`",
        default: Value("\"0600\""),
        doc: "The mode of the `socket`: open to its owner, or to its group as well.",
        reason: "A change to a gate can stop the service.",
        reloadable: false,
    },
    Field {
        key: "token_file",
        form: Form::Text,
        takes: "a path, or `\"none\"`",
        default: Value("\"none\""),
        doc: "A file with a token of 16 to 1024 characters without spaces. A change over `listen` needs it (`Authorization: Bearer …`). Refused if others can read the file. Read again on reload.",
        reason: "Without one nobody on the network can change anything. The listener has no TLS: beyond loopback put a proxy with TLS in front.",
        reloadable: true,
    },
];

/// Whether a key only serves to compare with published methods.
pub fn is_of_laboratory(key: &str) -> bool {
    key.starts_with("yaksha_")
}

/// The keys of `[log]`.
pub const LOG: &[Field] = &[
    Field {
        key: "format",
        form: Form::Any,
        takes: "`\"text\"` or `\"json\"`",
        default: Value("\"text\""),
        doc: "The form of a line of the log: `key=value`, or JSON.",
        reason: "A person reads it first; a collector asks for JSON.",
        reloadable: false,
    },
    Field {
        key: "level",
        form: Form::Any,
        takes: "`\"error\"`, `\"warn\"`, `\"info\"`, `\"debug\"` or `\"trace\"`",
        default: Value("\"info\""),
        doc: "The least important level that is written. The environment variable `RUST_LOG` overrides it.",
        reason: "What starts, stops or changes a policy; nothing for each request.",
        reloadable: true,
    },
];

/// The keys of `[process]`.
pub const PROCESS: &[Field] = &[
    Field {
        key: "handover_timeout",
        form: Form::Any,
        takes: "a duration from 0 up to 24 h",
        default: Value("\"10m\""),
        doc: "After a successor has taken the sockets over: how long connected clients are served on. Those that are left are drained then (`drain_timeout`).",
        reason: "Most applications renew or close their connections by then.",
        reloadable: true,
    },
    Field {
        key: "memory_max",
        form: Form::Any,
        takes: "16 to 1000000 megabytes, or `\"auto\"`",
        default: Value("\"auto\""),
        doc: "The most memory for clients' messages, prepared statements' texts, heads and waiting bodies, at all gates together. What HTTP/2 lets clients send ahead (4 MiB for each connection) counts once it has come. Up to 4 KiB of each client or request aren't counted. Where there is no room, the largest is refused first: with SQLSTATE 53200, or 503 over HTTP. `auto` is an eighth of the machine's or control group's memory, at least 64 and at most 1024.",
        reason: "A single message may take 256 MB, so a few clients could take all memory.",
        reloadable: true,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_toml_value() {
        for field in
            ADMIN.iter().chain(LOG).chain(PROCESS).chain(GATE).chain(ROUTE).chain(CLASS).chain(OWN_TARGET)
        {
            let is_value = matches!(field.default, Value(_) | Each(..));
            for protocol in [Protocol::Postgres, Protocol::Mysql, Protocol::Http] {
                assert_eq!(field.default_value(protocol).is_some(), is_value, "{}", field.key);
            }
        }
    }

    #[test]
    fn every_key_is_documented_with_a_reason() {
        for field in
            ADMIN.iter().chain(LOG).chain(PROCESS).chain(GATE).chain(ROUTE).chain(CLASS).chain(OWN_TARGET)
        {
            for text in [field.doc, field.reason] {
                assert!(text.ends_with('.') && text.len() > 15, "{}: {text:?}", field.key);
            }
        }
    }
}
