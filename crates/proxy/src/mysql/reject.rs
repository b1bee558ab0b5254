//! What a client is told when something is refused or lost: the one place where reasons become MySQL's
//! errors.
//!
//! | what | error, SQLSTATE | then |
//! |---|---|---|
//! | refused by the gate | 1205, HY000 | the session lives on |
//! | canceled while it waited | 1317, 70100 | the session lives on |
//! | state of another statement that is gone | 1105, HY000 | the session lives on |
//! | too many clients | 1040, 08004 | no session |
//! | too many failed logins | 1129, HY000 | no session |
//! | a wrong password or an unknown user | 1045, 28000 | no session |
//! | the server can't be reached or used | 1105, 08S01 | no session, or the session lives on |
//! | the connection to the server was lost | 2013, HY000 | the session ends |
//! | the gate drains | 1053, 08S01 | the session ends |
//! | a broken message | 1835, HY000 | the session ends |
//! | an execution with broken parameters | 1835, HY000 | the session lives on |
//! | an execution with more long data than may wait | 1105, HY000 | the session lives on |
//! | a message without room | 1041, HY000 | the session lives on |
//! | a visitor of the console who isn't named | 1044, 42000 | no session |
//! | a command of the console fails | 1227, 1064, 1193, 1461, 1053 or 1105 | the session lives on |
//! | a KILL that can't be translated | 1235, 42000 | the session lives on |

use admission::{Reason, Refused};
use bytes::BytesMut;
use wire::mysql::answer::{ErrPacket, write_error};
use wire::mysql::codec::Sequence;

use crate::cause::Cause;
use crate::console::Failure;
use crate::gate::Driver;

/// An error of the gate, or one of the server that the gate has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    code: u16,
    state: [u8; 5],
    message: Vec<u8>,
}

/// What became of a statement that is refused.
pub(super) const NOT_RUN: &str = "the statement was not run";
/// What became of a login that is refused.
pub(super) const NO_LOGIN: &str = "the login was refused";
/// What MySQL calls `ER_SERVER_SHUTDOWN`.
const SHUTDOWN: u16 = 1053;

impl Refusal {
    fn new(code: u16, state: [u8; 5], message: impl Into<String>) -> Self {
        Self { code, state, message: message.into().into_bytes() }
    }

    /// The server's own error.
    pub(super) fn of_server(error: &ErrPacket<'_>) -> Self {
        let state = error.state.copied().unwrap_or(*b"HY000");
        Self { code: error.code, state, message: error.message.to_vec() }
    }

    /// Refused by the gate. `outcome` is what became of what the client asked for.
    pub(super) fn rejected(driver: &Driver, refused: Refused, outcome: &str) -> Self {
        let gate = driver.name();
        let cause = driver.cause(refused);
        let why = match refused.reason {
            Reason::QueueFull => "the queue is full (queue_max)",
            Reason::QueueTimeout => "it waited for queue_timeout",
            Reason::Deadline => "its deadline passed in the queue",
            Reason::DeadlineUnreachable => "it could not have been answered before its deadline",
            Reason::QueueDelay => "everybody waits for too long (rejection)",
            Reason::Target => "the response time could not have been held (target)",
            Reason::OverShare => {
                "requests like this one have more than their share, or take what others leave"
            }
            Reason::PinnedMax => "it needs a connection of its own, and no more may be kept (pinned_max)",
        };
        let message = match cause {
            Some(Cause::Paused) => format!("requests are paused, {outcome}. {}", Cause::Paused.advice()),
            Some(cause) => {
                format!("overloaded, {outcome}: {why}; try it again. {cause} {}", cause.advice())
            }
            None if refused.reason == Reason::Target => {
                let advice =
                    "If too many are refused, allow them more time, or give the server more capacity";
                format!("overloaded, {outcome}: {why}; try it again. {advice}")
            }
            None => format!("overloaded, {outcome}: {why}; try it again"),
        };
        Self::new(1205, *b"HY000", format!("gatekeeper {gate:?}: {message}"))
    }

    /// Names the request, as `gatekeeper why` takes it.
    pub(super) fn named(mut self, gate: &str, number: u64) -> Self {
        self.message.extend_from_slice(format!(" (gatekeeper why {gate}/{number})").as_bytes());
        self
    }

    /// What it says.
    pub(super) fn message(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.message)
    }

    pub(super) fn code(&self) -> u16 {
        self.code
    }

    pub(super) fn sqlstate(&self) -> &str {
        std::str::from_utf8(&self.state).unwrap_or("HY000")
    }

    /// Whether a login is refused because of the user that asked for it: a wrong password, a user that the
    /// server doesn't know, or one that it has locked.
    pub(super) fn blames_user(&self) -> bool {
        matches!(self.code, 1045 | 1698 | 3118 | 4151)
    }

    /// What to do where the server refuses a login whose proof was right here, for the log.
    pub(super) fn advice(&self) -> &'static str {
        match self.code {
            1045 | 1698 => {
                "; see whether the account has another password there than in the users file, may come from the gate's \
                 host, and takes logins without TLS (upstream_tls_mode)"
            }
            1820 | 1862 => {
                "; give the account another password there (ALTER USER … IDENTIFIED BY …), and in the users file"
            }
            3118 | 4151 => "; unlock the account there (ALTER USER … ACCOUNT UNLOCK)",
            _ => "",
        }
    }

    /// Whether the server doesn't let a user into a database, or doesn't have it.
    pub(super) fn is_of_database(&self) -> bool {
        matches!(self.code, 1044 | 1049)
    }

    pub(super) fn canceled_in_queue() -> Self {
        Self::new(1317, *b"70100", "Query execution was interrupted (in gatekeeper's queue)")
    }

    pub(super) fn too_many_clients() -> Self {
        Self::new(1040, *b"08004", "Too many connections (gatekeeper's max_clients)")
    }

    pub(super) fn no_visitor(user: &str) -> Self {
        let why = "not allowed to use gatekeeper's console (admin_users, stats_users)";
        Self::new(1044, *b"42000", format!("Access denied for user '{user}': {why}"))
    }

    pub(super) fn too_many_visitors() -> Self {
        Self::new(1040, *b"08004", "Too many visitors of gatekeeper's console")
    }

    /// A command of the console that failed.
    pub(super) fn of_console(failure: &Failure) -> Self {
        let (code, state) = match failure.code {
            "42501" => (1227, *b"42000"),
            "42601" => (1064, *b"42000"),
            "42704" => (1193, *b"HY000"),
            "54000" => (1461, *b"42000"),
            "57P01" => (1053, *b"08S01"),
            _ => (1105, *b"HY000"),
        };
        let hint = failure.hint.map_or(String::new(), |hint| format!(". {hint}"));
        Self::new(code, state, format!("gatekeeper: {}{hint}", failure.message))
    }

    /// The server can't be asked for a user. The log has the reason.
    pub(super) fn auth_query() -> Self {
        let why = "gatekeeper could not ask the server for this user (auth_query); its log says why";
        Self::new(1105, *b"HY000", why)
    }

    pub(super) fn too_many_questions() -> Self {
        Self::new(1040, *b"08004", "gatekeeper: too many logins wait for auth_query; try again")
    }

    pub(super) fn too_many_failures() -> Self {
        let why =
            "gatekeeper: too many failed logins from this address (login_failures_max); wait for a minute";
        Self::new(1129, *b"HY000", why)
    }

    pub(super) fn denied(user: &[u8]) -> Self {
        let user = String::from_utf8_lossy(user);
        Self::new(1045, *b"28000", format!("Access denied for user '{user}' (by gatekeeper's users_file)"))
    }

    pub(super) fn tls_is_required() -> Self {
        Self::new(
            3159,
            *b"HY000",
            "Connections using insecure transport are prohibited (gatekeeper's tls_mode)",
        )
    }

    pub(super) fn unreachable(why: &str) -> Self {
        Self::new(1105, *b"08S01", format!("gatekeeper: no connection to the server: {why}"))
    }

    pub(super) fn lost(why: &str) -> Self {
        Self::new(2013, *b"HY000", format!("gatekeeper: lost the connection to the server: {why}"))
    }

    /// Whether nothing can follow.
    pub(super) fn ends_session(&self) -> bool {
        self.code == SHUTDOWN
    }

    pub(super) fn draining() -> Self {
        Self::new(SHUTDOWN, *b"08S01", "Server shutdown in progress (gatekeeper)")
    }

    pub(super) fn malformed(why: &str) -> Self {
        Self::new(1835, *b"HY000", format!("Malformed communication packet: {why}"))
    }

    pub(super) fn results_are_gone() -> Self {
        let why = "gatekeeper: what FOUND_ROWS(), ROW_COUNT(), LASTVAL(), @@last_gtid or SHOW WARNINGS would \
                   tell is gone: the connection has served another session since, or was reset; from now on \
                   the session keeps its connection, so run the statement before again";
        Self::new(1105, *b"HY000", why)
    }

    pub(super) fn unknown_command(code: u8) -> Self {
        Self::new(1047, *b"08S01", format!("Unknown command {code:#04x} (gatekeeper)"))
    }

    pub(super) fn unknown_statement(statement: u32) -> Self {
        Self::new(
            1243,
            *b"HY000",
            format!("Unknown prepared statement handler ({statement}) given to gatekeeper"),
        )
    }

    /// What a server says whose `max_allowed_packet` is exceeded.
    pub(super) fn long_data_is_too_long() -> Self {
        let why = "gatekeeper: the long data of the session's statements is longer than 64 MiB";
        Self::new(1105, *b"HY000", why)
    }

    /// The process's budget has no room for a message.
    pub(super) fn no_room() -> Self {
        let why = "Out of memory: gatekeeper has no room for the message (memory_max), and has dropped it; try it \
                   again, or send less at once";
        Self::new(1041, *b"HY000", why)
    }

    pub(super) fn kill_is_unreadable() -> Self {
        let why = "gatekeeper: of KILL it translates only KILL [HARD | SOFT] [CONNECTION | QUERY] with a \
                   number, alone in its text";
        Self::new(1235, *b"42000", why)
    }

    pub(super) fn too_many_statements() -> Self {
        Self::new(1461, *b"42000", "Can't create more prepared statements (gatekeeper's bound for a session)")
    }

    pub(super) fn no_such_session(id: u64) -> Self {
        Self::new(1094, *b"HY000", format!("Unknown thread id: {id}"))
    }

    pub(super) fn write(&self, out: &mut BytesMut, sequence: Sequence) -> Sequence {
        let error = ErrPacket { code: self.code, state: Some(&self.state), message: &self.message };
        write_error(out, sequence, &error)
    }
}
