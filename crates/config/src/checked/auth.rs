//! Who may log in: the keys about authentication, and what must fit together among them.

use std::path::PathBuf;

use crate::complaint::Complaint;
use crate::raw::{self, Section};

/// How clients log in, and which users there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// How clients prove their identity.
    pub method: AuthMethod,
    /// The file of the users. This crate doesn't read it.
    pub users_file: Option<PathBuf>,
    /// The query for users that aren't in the file.
    pub query: Option<AuthQuery>,
    /// The most failed logins of one address in a minute; `None` for no bound.
    pub failures_max: Option<u32>,
    /// Whether a password may go to another machine in clear text.
    pub allow_cleartext: bool,
    /// Whether the gate's own logins to the server are bound to their TLS channel.
    pub channel_binding: ChannelBinding,
}

/// Whether a login by SCRAM is bound to the TLS channel that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// Where the server offers it.
    Prefer,
    /// Or there is no login.
    Require,
}

/// How clients prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    /// The server authenticates clients, through the gate.
    Relay,
    /// SCRAM-SHA-256.
    Scram,
    /// MD5, or SCRAM where the user's secret is stored for SCRAM.
    Md5,
    /// No password is asked, but the user must be known.
    Trust,
}

/// The query by which the server is asked for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthQuery {
    /// The user that asks.
    pub user: String,
    /// The database in which the query runs.
    pub database: String,
    /// The SQL statement; `None` for the built-in one.
    pub sql: Option<String>,
}

pub(crate) const METHODS: &[(&str, AuthMethod)] = &[
    ("relay", AuthMethod::Relay),
    ("scram-sha-256", AuthMethod::Scram),
    ("md5", AuthMethod::Md5),
    ("trust", AuthMethod::Trust),
];

pub(crate) const CHANNEL_BINDINGS: &[(&str, ChannelBinding)] = &[
    ("disable", ChannelBinding::Disable),
    ("prefer", ChannelBinding::Prefer),
    ("require", ChannelBinding::Require),
];

/// `listen_is_local` and `allow_trust_relay` are the gate's.
pub(super) fn read(section: &mut Section<'_>, listen_is_local: bool, allow_trust_relay: bool) -> Auth {
    let errors_before = section.error_count();
    let method = section.read("auth", |value| raw::choice(value, METHODS));
    let users_file = section.read_given("users_file", raw::some_text).map(PathBuf::from);
    let user = section.read_given("auth_user", raw::some_text);
    let database = section.read("auth_database", raw::some_text);
    let sql = section.read_given("auth_query", statement);
    let failures_max = failures_max(section);
    let auth = Auth {
        method,
        users_file,
        query: user.map(|user| AuthQuery { user, database, sql }),
        failures_max,
        allow_cleartext: section.read("allow_cleartext", raw::boolean),
        channel_binding: section
            .read("upstream_channel_binding", |value| raw::choice(value, CHANNEL_BINDINGS)),
    };
    if section.error_count() == errors_before {
        refuse_contradictions(section, &auth, listen_is_local || allow_trust_relay);
    }
    auth
}

pub(super) fn failures_max(section: &mut Section<'_>) -> Option<u32> {
    let bound = section.read("login_failures_max", |value| raw::bound(value, 1_000_000));
    bound.map(|bound| u32::try_from(bound).unwrap_or(u32::MAX))
}

fn refuse_contradictions(section: &mut Section<'_>, auth: &Auth, trust_is_harmless: bool) {
    let unused = |auth: &str| Complaint::new(format!("has no meaning with auth = {auth:?}"));
    if auth.method == AuthMethod::Relay {
        for key in ["users_file", "auth_user", "auth_query"] {
            if section.has(key) {
                section
                    .complain(key, unused("relay").hint("write auth = \"scram-sha-256\", or leave it out"));
            }
        }
        return;
    }
    if auth.users_file.is_none() && auth.query.is_none() {
        let why = "knows nobody: there is neither a users_file nor an auth_user";
        section
            .complain("auth", Complaint::new(why).hint("write users_file = \"/etc/gatekeeper/users.txt\""));
    }
    if auth.query.is_none() && section.has("auth_query") {
        let complaint = Complaint::new("needs an auth_user");
        section.complain("auth_query", complaint.hint("write auth_user, whose right it is to ask"));
    }
    if auth.method == AuthMethod::Trust && !trust_is_harmless {
        let why = "lets everybody in who can reach `listen`, as anybody";
        let hint = "use \"scram-sha-256\", listen on 127.0.0.1, or set allow_trust_relay = true if only trusted \
                    machines can reach this port";
        section.complain("auth", Complaint::new(why).hint(hint));
    }
}

fn statement(value: &toml::de::DeValue<'_>) -> Result<String, Complaint> {
    let text = raw::some_text(value)?;
    if text.contains("$1") {
        Ok(text)
    } else {
        Err(Complaint::new("has no $1").hint("the user's name is its first parameter: … WHERE rolname = $1"))
    }
}
