//! What a client is told when something is refused or lost: the one place where reasons become SQLSTATEs.
//!
//! | what | SQLSTATE | then |
//! |---|---|---|
//! | refused by the gate, or by a gate that is late itself | `53300` | the session lives on |
//! | canceled while it waited | `57014` | the session lives on |
//! | a statement after a refused BEGIN | `25P02` | until ROLLBACK |
//! | connection lost within a transaction | `08006` | the transaction has failed |
//! | connection lost with the outcome unknown | `08007` | the session lives on, or ends with its state |
//! | no connection can be had any more, or we drain | `57P01` | the session ends |
//! | a broken message | `08P01` | the session ends |
//! | a message or a number of statements beyond our bounds | `54000` | the session ends / lives on |

use std::borrow::Cow;
use std::time::Duration;

use admission::Reason;
use bytes::BytesMut;
use wire::postgres::backend::{Error, Severity, write_error, write_notice};
use wire::postgres::frontend::bind_counts;
use wire::postgres::{Fault, ProtocolError};

use super::query_error::QueryError;
use crate::cause::Cause;

/// What a server process says whose server has crashed.
const CRASH: &str = "57P02";

/// An ErrorResponse of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    severity: Severity,
    pub(crate) code: Cow<'static, str>,
    message: Cow<'static, str>,
    detail: Option<Cow<'static, str>>,
    hint: Option<Cow<'static, str>>,
}

impl Refusal {
    const fn new(severity: Severity, code: &'static str, message: &'static str) -> Self {
        Self {
            severity,
            code: Cow::Borrowed(code),
            message: Cow::Borrowed(message),
            detail: None,
            hint: None,
        }
    }

    const fn error(code: &'static str, message: &'static str) -> Self {
        Self::new(Severity::Error, code, message)
    }

    const fn fatal(code: &'static str, message: &'static str) -> Self {
        Self::new(Severity::Fatal, code, message)
    }

    fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Refused by the gate, after waiting so long for `cause`; the queue will have drained after `retry`.
    pub(crate) fn rejected(
        gate: &str,
        reason: Reason,
        (waited, retry): (Duration, Duration),
        cause: Option<Cause>,
    ) -> Self {
        let waited = waited.as_secs_f64();
        let mut detail = match reason {
            Reason::QueueFull => "The queue is full (queue_max).".to_owned(),
            Reason::QueueTimeout => format!("It waited for {waited:.3} s (queue_timeout)."),
            Reason::Deadline => format!("Its deadline passed after {waited:.3} s in the queue."),
            Reason::DeadlineUnreachable => {
                "It could not have been answered before its deadline, given the queue ahead.".to_owned()
            }
            Reason::QueueDelay => format!("It waited for {waited:.3} s, as everybody does (rejection)."),
            Reason::Target => "The response time could not have been held (target).".to_owned(),
            Reason::OverShare => {
                "Requests like this one have more than their share, or take what others leave.".to_owned()
            }
            Reason::PinnedMax => {
                "The statement needs a server connection of its own, and no more may be kept (pinned_max)."
                    .to_owned()
            }
        };
        if let Some(cause) = cause {
            detail = format!("{detail} {cause}");
        }
        let retry = retry.as_secs_f64().ceil();
        let hint = match (reason, cause) {
            (_, Some(Cause::Paused)) => Cause::Paused.advice().to_owned(),
            (_, Some(cause)) => format!("Retry after {retry} s. {}", cause.advice()),
            (Reason::OverShare, _) => {
                format!("Retry after {retry} s; requests of others are served meanwhile.")
            }
            (Reason::Target, _) => format!(
                "Retry after {retry} s; if too many are refused, allow them more time (target), or give the database \
                 more capacity."
            ),
            (Reason::QueueFull | Reason::QueueTimeout | Reason::QueueDelay, _) => {
                format!("Retry after {retry} s; if this is ordinary load, the database needs more capacity.")
            }
            (Reason::Deadline | Reason::DeadlineUnreachable, _) => {
                "The answer would have come too late: the statement was not sent.".to_owned()
            }
            (Reason::PinnedMax, _) => {
                "Avoid session state (temporary tables, session locks, LISTEN, SQL PREPARE), raise \
                                  pinned_max, or use pooling = \"session\"."
                    .to_owned()
            }
        };
        let message = match reason {
            Reason::PinnedMax => format!("gatekeeper \"{gate}\": too many sessions hold a server connection"),
            _ if cause == Some(Cause::Paused) => {
                format!("gatekeeper \"{gate}\": requests are paused, and this one was refused")
            }
            _ => format!("gatekeeper \"{gate}\": the database is overloaded, the request was refused"),
        };
        let mut refusal = Self::error("53300", "").detail(detail).hint(hint);
        refusal.message = message.into();
        refusal
    }

    /// Names the request, as `gatekeeper why` takes it.
    pub(crate) fn named(mut self, gate: &str, number: u64) -> Self {
        let hint = self.hint.take().unwrap_or_default();
        self.hint(
            format!("{hint} What it waited for: gatekeeper why {gate}/{number}").trim_start().to_owned(),
        )
    }

    /// Refused unread because the gate's own processor is short.
    pub(crate) fn late(gate: &str) -> Self {
        let mut refusal = Self::error("53300", "")
            .detail("Clients wait until the gate reads what they have sent.")
            .hint("Give the gate more processor time, or less to do.");
        refusal.message =
            format!("gatekeeper \"{gate}\": the gate itself is late, the request was refused").into();
        refusal
    }

    /// A cancel request reached it in the queue.
    pub(crate) fn canceled_in_queue() -> Self {
        Self::error("57014", "canceling statement due to user request")
            .detail("It was waiting in gatekeeper's queue.")
    }

    /// PostgreSQL's error for a statement in a failed transaction.
    pub(crate) fn in_failed_transaction() -> Self {
        Self::error(
            "25P02",
            "current transaction is aborted, commands ignored until end of transaction block",
        )
    }

    /// PostgreSQL's error for a savepoint that doesn't exist.
    pub(crate) fn no_such_savepoint(name: &[u8]) -> Self {
        let mut refusal = Self::error("3B001", "");
        refusal.message = format!("savepoint \"{}\" does not exist", String::from_utf8_lossy(name)).into();
        refusal
    }

    /// PostgreSQL's error for a statement whose tables have changed.
    pub(crate) fn stale_plan() -> Self {
        Self::error("0A000", "cached plan must not change result type")
    }

    /// PostgreSQL's error for a prepared statement that doesn't exist.
    pub(crate) fn no_such_statement(name: &[u8]) -> Self {
        let mut refusal = Self::error("26000", "");
        refusal.message = match name {
            [] => "unnamed prepared statement does not exist".into(),
            name => format!("prepared statement \"{}\" does not exist", String::from_utf8_lossy(name)).into(),
        };
        refusal
    }

    /// PostgreSQL's error for a prepared statement whose name is in use.
    pub(crate) fn statement_exists(name: &[u8]) -> Self {
        let mut refusal = Self::error("42P05", "");
        let name = String::from_utf8_lossy(name);
        refusal.message = format!("prepared statement \"{name}\" already exists").into();
        refusal
    }

    /// PostgreSQL's error for a portal that doesn't exist.
    pub(crate) fn no_such_portal(name: &[u8]) -> Self {
        let mut refusal = Self::error("34000", "");
        refusal.message = format!("portal \"{}\" does not exist", String::from_utf8_lossy(name)).into();
        refusal
    }

    /// PostgreSQL's error for a portal that has run.
    pub(crate) fn spent_portal(name: &[u8]) -> Self {
        let mut refusal = Self::error("55000", "");
        refusal.message = format!("portal \"{}\" cannot be run", String::from_utf8_lossy(name)).into();
        refusal
    }

    /// A bound of ours.
    pub(crate) fn too_many_statements(bound: usize) -> Self {
        Self::error("54000", "too many prepared statements in this session")
            .detail(format!("Gatekeeper keeps at most {bound} for a client."))
            .hint("DEALLOCATE those that are no longer used.")
    }

    /// A bound of ours.
    pub(crate) fn message_too_large(length: usize, bound: usize) -> Self {
        Self::fatal("54000", "message too large for the gate")
            .detail(format!("It has {length} bytes; at most {bound} can be held back for admission."))
            .hint("Send large data by COPY, or inside a transaction that has begun.")
    }

    /// The gate's memory is used up; the message is dropped, and the session goes on.
    pub(crate) fn no_memory(length: usize) -> Self {
        Self::error("53200", "the gate has no room for this message")
            .detail(format!("The message has {length} bytes. Gatekeeper holds it until the server takes it."))
            .hint("Send large data by COPY, or raise `memory_max` in the gate's [process] section.")
    }

    /// The rest of a message doesn't come.
    pub(crate) fn message_late(bound: Duration) -> Self {
        Self::fatal("57P05", "terminating the session because the rest of a message has not come")
            .detail(format!("Gatekeeper waits for {} s at most (message_timeout).", bound.as_secs_f64()))
    }

    /// The server went away with the statement's outcome unknown.
    pub(crate) fn outcome_unknown(server_said: Option<&str>) -> Self {
        lost(
            "08007",
            "the server connection was lost before it answered; the outcome is unknown",
            server_said,
        )
    }

    /// The server went away within a transaction.
    pub(crate) fn transaction_lost(server_said: Option<&str>) -> Self {
        lost("08006", "the server connection was lost; the transaction has been rolled back", server_said)
    }

    /// The server went away before anything was sent.
    pub(crate) fn not_sent() -> Self {
        Self::error(
            "08006",
            "the server connection was lost before the statement was sent; it was not executed",
        )
        .hint("It is safe to retry.")
    }

    /// The server went away together with state that no other connection has.
    pub(crate) fn session_lost(server_said: Option<&str>) -> Self {
        let refusal =
            lost("57P01", "the server connection that this session was pinned to was lost", server_said);
        Self { severity: Severity::Fatal, ..refusal }
    }

    /// The server went away together with state that no other connection has, while a statement was
    /// unanswered. A server that ends the session in order says that the statement wasn't done. After a
    /// crash, or without a word, the statement may have been done.
    pub(crate) fn session_lost_unanswered(server_said: Option<&str>) -> Self {
        match server_said {
            Some(said) if !said.starts_with(CRASH) => Self::session_lost(server_said),
            _ => Self { severity: Severity::Fatal, ..Self::outcome_unknown(server_said) },
        }
    }

    /// No connection of this user and database is left, and only a login can bring another.
    pub(crate) fn pool_is_gone() -> Self {
        Self::fatal(
            "57P01",
            "terminating connection: gatekeeper has lost all server connections of this user and database",
        )
        .hint("Connect again: the server must authenticate a new login.")
    }

    /// The session's settings can't be carried to the server connection that it got.
    pub(crate) fn settings(name: Option<&str>, error: &QueryError) -> Self {
        let (code, said) = match error {
            QueryError::Refused { sqlstate, message, .. } => (Cow::Owned(sqlstate.clone()), message.clone()),
            other => (Cow::Borrowed("08006"), other.to_string()),
        };
        let message = format!("the session's settings could not be restored: {said}");
        let refusal = Self { code, message: message.into(), ..Self::error("", "") };
        match name {
            Some(name) => refusal
                .detail(format!("Nothing was executed. \"{name}\" has its default from here on."))
                .hint("Set it again, and then try again."),
            None => refusal.detail("Nothing was executed.").hint("Try again."),
        }
    }

    /// The gate drains.
    pub(crate) fn shutting_down() -> Self {
        Self::fatal("57P01", "terminating connection: gatekeeper is shutting down").hint("Connect again.")
    }

    /// The session's transaction was idle for too long. As PostgreSQL says it.
    pub(crate) fn idle_in_transaction() -> Self {
        Self::fatal("25P03", "terminating connection due to idle-in-transaction timeout")
            .detail("It is the gate's (idle_transaction_timeout).")
    }

    /// Somebody has ended the session from the console. As PostgreSQL says it.
    pub(crate) fn ended_by_operator() -> Self {
        Self::fatal("57P01", "terminating connection due to administrator command")
            .detail("It was ended from gatekeeper's console.")
    }

    /// The client broke the protocol.
    pub(crate) fn protocol_violation(what: &str) -> Self {
        let mut refusal = Self::fatal("08P01", "");
        refusal.message = what.to_owned().into();
        refusal
    }

    /// The client's message ends the session. Within a COPY, PostgreSQL says first what is wrong with it.
    pub(crate) fn broken(error: &ProtocolError) -> (Option<Self>, Self) {
        let fault = error.fault();
        if !matches!(fault, Fault::WithinCopy { .. }) {
            return (None, Self::protocol_violation(&error.to_string()));
        }
        let first = Self { message: fault.to_string().into(), ..Self::error("08P01", "") };
        let last = "terminating connection because protocol synchronization was lost";
        (Some(first), Self::protocol_violation(last))
    }

    /// A client's message is whole, but its fields don't fill it. As PostgreSQL says it.
    pub(crate) fn malformed(error: &ProtocolError) -> Self {
        let message = match error.fault() {
            Fault::Unterminated { .. } => "invalid string in message".into(),
            Fault::Truncated { field: "target", .. } => "no data left in message".into(),
            Fault::Truncated { .. } => "insufficient data left in message".into(),
            Fault::Target { tag: b'D', byte } => format!("invalid DESCRIBE message subtype {byte}").into(),
            Fault::Target { byte, .. } => format!("invalid CLOSE message subtype {byte}").into(),
            _ => "invalid message format".into(),
        };
        Self { message, ..Self::error("08P01", "") }
    }

    /// Whether a statement ran before it failed so. One that didn't leaves the unnamed portal alone.
    pub(crate) fn has_run(&self) -> bool {
        self.code == "3B001"
    }

    /// A bound of ours.
    pub(crate) fn too_many_portals(bound: usize) -> Self {
        Self::error("54000", "too many portals in this transaction")
            .detail(format!("At most {bound} can be open."))
            .hint("Close portals, or end the transaction.")
    }

    /// A Parse has more than one statement. As PostgreSQL says it.
    pub(crate) fn several_statements() -> Self {
        Self::error("42601", "cannot insert multiple commands into a prepared statement")
    }

    /// A Bind has values for a statement that has no parameters. As PostgreSQL says it.
    pub(crate) fn bound_values(statement: &[u8], rest: &[u8]) -> Self {
        let message = match bind_counts(rest) {
            Err(error) => return Self::malformed(&error),
            Ok((formats, parameters)) if formats > 1 && formats != parameters => {
                format!("bind message has {formats} parameter formats but {parameters} parameters")
            }
            Ok((_, parameters)) => format!(
                "bind message supplies {parameters} parameters, but prepared statement \"{}\" requires 0",
                String::from_utf8_lossy(statement)
            ),
        };
        Self { message: message.into(), ..Self::error("08P01", "") }
    }

    /// The server broke the protocol.
    pub(crate) fn server_violation(what: &str) -> Self {
        Self::fatal("08P01", "gatekeeper does not understand the server").detail(what.to_owned())
    }

    /// Appends the ErrorResponse.
    pub(crate) fn write(&self, out: &mut BytesMut) {
        write_error(out, &self.fields());
    }

    /// Tells a client that its request still waits.
    pub(crate) fn notice_of_wait(out: &mut BytesMut, waited: Duration) {
        let text = format!("gatekeeper: the request still waits, for {:.1} s now", waited.as_secs_f64());
        let notice = Refusal { message: text.into(), ..Self::new(Severity::Notice, "00000", "") };
        write_notice(out, &notice.fields());
    }

    fn fields(&self) -> Error<'_> {
        Error {
            severity: self.severity,
            code: &self.code,
            message: &self.message,
            detail: self.detail.as_deref(),
            hint: self.hint.as_deref(),
        }
    }
}

/// Appends the warning that PostgreSQL gives for COMMIT or ROLLBACK outside a transaction.
pub(crate) fn warn_no_transaction(out: &mut BytesMut) {
    let warning = Refusal::new(Severity::Warning, "25P01", "there is no transaction in progress");
    write_notice(out, &warning.fields());
}

fn lost(code: &'static str, message: &'static str, server_said: Option<&str>) -> Refusal {
    let refusal = Refusal::error(code, message);
    match server_said {
        Some(said) => refusal.detail(format!("The server said: {said}")),
        None => refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::postgres::backend::parse_error;

    #[test]
    fn a_refusal_is_an_error_with_reason_and_hint_and_not_fatal() {
        for reason in crate::observe::REASONS {
            let mut out = BytesMut::new();
            let times = (Duration::from_millis(1500), Duration::from_secs(7));
            Refusal::rejected("shop", reason, times, None).write(&mut out);
            let fields = parse_error(&out[5..]);
            assert_eq!((fields.severity(), fields.code()), ("ERROR", "53300"));
            assert!(fields.detail().is_some() && fields.hint().is_some(), "{reason:?}");
        }
    }

    #[test]
    fn who_is_refused_is_told_when_the_queue_will_have_drained() {
        let mut out = BytesMut::new();
        let times = (Duration::ZERO, Duration::from_millis(6_100));
        Refusal::rejected("shop", Reason::Target, times, None).write(&mut out);
        let hint = parse_error(&out[5..]).hint().expect("a hint");
        let hint = String::from_utf8_lossy(hint);
        assert!(hint.starts_with("Retry after 7 s") && hint.contains("(target)"), "{hint}");
    }

    #[test]
    fn a_refusal_says_what_was_waited_for_and_what_helps() {
        let told = |cause| {
            let times = (Duration::from_millis(1500), Duration::from_secs(7));
            let mut out = BytesMut::new();
            Refusal::rejected("shop", Reason::QueueTimeout, times, Some(cause)).write(&mut out);
            let fields = parse_error(&out[5..]);
            let text = |field: Option<&[u8]>| String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
            (text(fields.detail()), text(fields.hint()))
        };
        let longest = Duration::from_millis(61_500);
        let (detail, hint) = told(Cause::Silent { held: 3, connections: 4, longest });
        assert_eq!(
            detail,
            "It waited for 1.500 s (queue_timeout). All 4 server connections are in use; idle transactions hold 3 of \
             them, the oldest for 61.5 s."
        );
        assert!(hint.contains("idle_transaction_timeout"), "{hint}");
        let (detail, hint) = told(Cause::Paused);
        assert!(detail.ends_with("An operator has paused requests."), "{detail}");
        assert!(hint.contains("RESUME"), "{hint}");
        for (cause, said, key) in [
            (Cause::LongLane { most: 2 }, "At most 2 long requests run at once.", "(long_limit)"),
            (Cause::Requests { most: 8 }, "At most 8 requests run at once (capacity).", "(capacity)"),
            (Cause::Work, "As much work is in flight as the capacity allows.", "(capacity)"),
            (Cause::Class, "Requests of other classes go first.", "(weight, background)"),
            (Cause::Group, "as many of these run as do well.", "(contention)"),
            (Cause::Stall, "The service answers no request.", "what the service itself waits for"),
        ] {
            let (detail, hint) = told(cause);
            assert!(detail.ends_with(said), "{detail}");
            assert!(hint.starts_with("Retry after 7 s. ") && hint.contains(key), "{hint}");
        }
    }

    #[test]
    fn what_ends_the_session_is_fatal() {
        let unanswered = Refusal::session_lost_unanswered;
        for refusal in [
            Refusal::pool_is_gone(),
            Refusal::shutting_down(),
            Refusal::protocol_violation("x"),
            unanswered(None),
        ] {
            let mut out = BytesMut::new();
            refusal.write(&mut out);
            assert!(parse_error(&out[5..]).is_fatal());
        }
    }

    #[test]
    fn only_a_server_that_ends_in_order_says_that_a_statement_was_not_done() {
        let code = |said| Refusal::session_lost_unanswered(said).code;
        assert_eq!(code(Some("57P01 terminating connection due to administrator command")), "57P01");
        assert_eq!(code(Some("57P02 terminating connection because of crash")), "08007");
        assert_eq!(code(None), "08007");
    }
}
