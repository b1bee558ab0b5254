//! One table of the file, read key by key; whatever is wrong is noted with its place, and reading goes on.

use admission::{ControlMaker, RefuseMaker};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::{ADMIN, Field, Form, LOG, PROCESS};
use crate::complaint::Complaint;
use crate::error::{Error, Position, quoted};
use crate::protocol::Protocol;

/// Keys that people know from elsewhere, and the answer.
const FOREIGN_KEYS: &[(&str, &str)] = &[
    ("max_connections", "`connections` is the budget of server connections"),
    ("pool_size", "`connections` is the budget of server connections"),
    ("default_pool_size", "`connections` is the budget of server connections"),
    ("max_client_conn", "`max_clients` bounds the clients"),
    ("pool_mode", "`pooling` chooses between transactions and sessions"),
    ("port", "the port belongs to the address: `listen = \"127.0.0.1:6432\"`"),
    ("host", "the host belongs to the address: `upstream = \"host:5432\"`"),
    ("auth_type", "`auth` says how clients prove who they are"),
    ("auth_file", "`users_file` names who may log in"),
    ("auth_dbname", "`auth_database` is where `auth_user` asks"),
    ("client_login_timeout", "`login_timeout` bounds a login"),
    ("user", "no credentials belong here: every client logs in to the server as itself"),
    ("password", "no credentials belong here: every client logs in to the server as itself"),
    ("database", "each client chooses its own database"),
    ("sslmode", "`tls_mode` is for clients, `upstream_tls_mode` for the server"),
    ("ssl", "`tls_mode` is for clients, `upstream_tls_mode` for the server"),
    ("tls", "`tls_mode` is for clients, `upstream_tls_mode` for the server"),
    ("client_tls_sslmode", "`tls_mode` is for clients"),
    ("client_tls_cert_file", "`tls_cert` is the gate's certificate"),
    ("client_tls_key_file", "`tls_key` is the gate's key"),
    ("client_tls_ca_file", "`tls_client_ca` signs clients' certificates"),
    ("server_tls_sslmode", "`upstream_tls_mode` is for the server"),
    ("server_tls_ca_file", "`upstream_tls_ca` signs the server's certificate"),
    ("ssl_cert_file", "`tls_cert` is the gate's certificate"),
    ("ssl_key_file", "`tls_key` is the gate's key"),
    ("ssl_ca_file", "`tls_client_ca` signs clients' certificates"),
    ("sslrootcert", "`upstream_tls_ca` signs the server's certificate"),
    ("codel_target", "CoDel is a method to compare with, for simulations; `target` holds a response time"),
    ("codel_interval", "CoDel is a method to compare with, for simulations; `target` holds a response time"),
    ("dns_max_ttl", "`dns_ttl` is how often the server's name is looked up"),
];

/// Published methods that only a simulated gate may have, to compare with.
#[derive(Clone, Copy, Debug)]
pub struct Yardsticks {
    /// Those that `capacity` takes.
    pub capacities: &'static [ControlMaker],
    /// Those that `rejection` takes.
    pub rejections: &'static [RefuseMaker],
}

/// What a gate stands before.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Before {
    Service,
    /// A service of a scenario: the gate may have these methods, too.
    Simulation(Yardsticks),
}

/// One table and the keys that it may hold.
pub struct Section<'a> {
    /// Its name in errors, such as `gate "shop"`.
    name: String,
    table: &'a DeTable<'a>,
    fields: &'static [Field],
    /// Whose defaults hold.
    protocol: Protocol,
    before: Before,
    /// Where its header stands.
    header: usize,
    /// The whole file, for places and quotes.
    text: &'a str,
    errors: &'a mut Vec<Error>,
}

impl<'a> Section<'a> {
    /// Opens a table whose header begins at byte `header` of the text.
    pub fn open(
        name: String,
        table: &'a DeTable<'a>,
        fields: &'static [Field],
        (text, header): (&'a str, usize),
        errors: &'a mut Vec<Error>,
    ) -> Self {
        let (protocol, before) = (Protocol::Postgres, Before::Service);
        let mut section = Self { name, table, fields, protocol, before, header, text, errors };
        section.refuse_unknown_keys();
        section
    }

    /// From now on the defaults of this protocol hold.
    pub(crate) fn for_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// From now on the gate is one that stands before a simulation, and may have these methods.
    pub(crate) fn simulate(&mut self, yardsticks: Yardsticks) {
        self.before = Before::Simulation(yardsticks);
    }

    /// What the gate stands before.
    pub(crate) fn before(&self) -> Before {
        self.before
    }

    /// The values of unknown keys aren't quoted: one may be a password.
    fn refuse_unknown_keys(&mut self) {
        let known: Vec<_> = self.fields.iter().map(|field| field.key).collect();
        for key in self.table.keys().filter(|key| !known.contains(&&**key.get_ref())) {
            let hint = hint_for_unknown(key.get_ref(), &known);
            let error = unknown_key(key.get_ref(), Position::of(self.text, key.span().start), hint);
            self.errors.push(Error { section: self.name.clone(), ..error });
        }
    }

    /// The key's value, or its default if it is absent or wrong.
    pub fn read<T>(&mut self, key: &str, parse: impl Fn(&DeValue<'_>) -> Result<T, Complaint>) -> T {
        if let Some(value) = self.read_given(key, &parse) {
            return value;
        }
        let default = self
            .field(key)
            .default_value(self.protocol)
            .expect("only keys with a default are read like this");
        parse(&default).expect("every default is valid, and every test reads them all")
    }

    /// The key's value, if it is there and right.
    pub fn read_given<T>(
        &mut self,
        key: &str,
        parse: impl Fn(&DeValue<'_>) -> Result<T, Complaint>,
    ) -> Option<T> {
        debug_assert_eq!(self.field(key).key, key);
        let value = self.table.get(key)?;
        match parse(value.get_ref()) {
            Ok(value) => Some(value),
            Err(complaint) => {
                self.complain(key, complaint);
                None
            }
        }
    }

    /// The tables of a key, if it is there and a list of them.
    pub(crate) fn tables(&mut self, key: &str, written: &str) -> Option<&'a DeArray<'a>> {
        match self.table.get(key)?.get_ref() {
            DeValue::Array(tables) => Some(tables),
            _ => {
                let hint = format!("write {written} (two brackets: there may be several)");
                self.complain(key, Complaint::new("isn't a list").hint(hint));
                None
            }
        }
    }

    /// One of several tables of a kind below this one; `None`, and complained about, where it isn't a table.
    pub(crate) fn below<'b>(
        &'b mut self,
        kind: &str,
        table: &'b Spanned<DeValue<'b>>,
        fields: &'static [Field],
        hint: &str,
    ) -> Option<Section<'b>> {
        let start = table.span().start;
        let DeValue::Table(keys) = table.get_ref() else {
            self.errors.push(Error {
                position: Some(Position::of(self.text, start)),
                hint: Some(hint.to_owned()),
                ..Error::new(format!("a {kind} isn't a table"))
            });
            return None;
        };
        let name = format!("{}: {kind}", self.name);
        Some(Section::open(name, keys, fields, (self.text, start), self.errors))
    }

    /// Whether the key is there, right or wrong.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// How many errors there are so far, here and elsewhere.
    pub(crate) fn error_count(&self) -> usize {
        self.errors.len()
    }

    /// Whether one of these keys has been complained of since there were so many errors.
    pub(crate) fn has_complained_of(&self, keys: &[&str], since: usize) -> bool {
        let is_one = |error: &Error| error.key.as_deref().is_some_and(|key| keys.contains(&key));
        self.errors[since..].iter().any(is_one)
    }

    /// Notes what is wrong with a key, whether it is there or not.
    pub fn complain(&mut self, key: &str, complaint: Complaint) {
        let given = self.table.get_key_value(key);
        let byte = given.map_or(self.header, |(_, value)| value.span().start);
        self.errors.push(Error {
            position: Some(Position::of(self.text, byte)),
            section: self.name.clone(),
            key: Some(key.to_owned()),
            value: given.and_then(|(_, value)| self.text.get(value.span())).map(without_secrets),
            why: complaint.why,
            hint: complaint.hint,
        });
    }

    fn field(&self, key: &str) -> &'static Field {
        self.fields.iter().find(|field| field.key == key).expect("only declared keys are read")
    }
}

/// Complains of a key that nothing knows.
pub fn unknown_key(key: &str, position: Position, hint: Option<String>) -> Error {
    Error {
        position: Some(position),
        key: Some(key.to_owned()),
        why: "there is no such key".to_owned(),
        hint,
        ..Error::default()
    }
}

/// What may have been meant by an unknown key.
pub fn hint_for_unknown(key: &str, known: &[&str]) -> Option<String> {
    let lower = key.to_ascii_lowercase().replace('-', "_");
    if let Some((_, answer)) = FOREIGN_KEYS.iter().find(|(foreign, _)| *foreign == lower) {
        return Some((*answer).to_owned());
    }
    let tables = [("admin", ADMIN), ("log", LOG), ("process", PROCESS)];
    let has_it = |(_, fields): &(&str, &[Field])| fields.iter().any(|field| field.key == lower);
    if let Some((table, _)) = tables.into_iter().find(has_it).filter(|_| !known.contains(&key)) {
        return Some(format!("`{lower}` belongs below [{table}]"));
    }
    let distance = |candidate: &&&str| strsim::damerau_levenshtein(&lower, candidate);
    let nearest = known.iter().min_by_key(distance)?;
    // A third of the letters may be wrong: more is another word.
    (distance(&nearest) <= (nearest.len() / 3).max(1)).then(|| format!("did you mean `{nearest}`?"))
}

/// A value as quoted in an error: not at all where it may hold a password.
fn without_secrets(value: &str) -> String {
    let lower = value.to_ascii_lowercase();
    if value.contains('@') || lower.contains("password") { "\"…\"".to_owned() } else { quoted(value) }
}

/// What somebody typed after a flag as a TOML value.
pub(crate) fn literal(form: Form, text: &str) -> String {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-'))
        && DeValue::parse(text).is_ok();
    if form == Form::Any && (is_number || matches!(text, "true" | "false")) {
        text.to_owned()
    } else {
        // A shell fills in the variables of a flag.
        toml::Value::from(text.replace("${", "$${")).to_string()
    }
}
