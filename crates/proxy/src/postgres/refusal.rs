//! Why a login ends, and what the client hears then: every reason's answer is in this file.

use std::time::Duration;

use bytes::BytesMut;
use wire::postgres::backend::{Error, Severity, write_error};
use wire::postgres::startup::StartupError;

use super::auth::scram::ExchangeError;
use super::pool::JoinError;
use crate::sql::logins::Cause;
use crate::upstream::address::ConnectError;

/// A login that ends with an answer of our own. (Errors of the server are passed on as they are.)
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Startup(#[from] StartupError),
    #[error("replication connections need session pooling")]
    Replication,
    #[error("this gate takes connections with TLS only")]
    TlsRequired,
    #[error("the client's certificate {}, not user \"{user}\"'s", owner(.name.as_deref()))]
    CertificateName { name: Option<String>, user: String },
    #[error("the login is bound to a TLS channel that ends at the gate")]
    ChannelBinding,
    #[error("sorry, too many clients already: max_clients is {0}")]
    TooManyClients(u32),
    #[error("sorry, too many clients of {what} \"{name}\" already: {what}_clients_max is {most}")]
    TooManyOf { what: &'static str, name: String, most: u32 },
    #[error("waited {} s for one of {connections} server connections", waited.as_secs_f64())]
    NoConnection { connections: u32, waited: Duration },
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error("canceling authentication due to timeout")]
    Timeout,
    #[error("the database server has not answered the login within {} s", .0.as_secs_f64())]
    ServerSilent(Duration),
    #[error("waited {} s for a place among the logins: as many as logins_max are under way", .0.as_secs_f64())]
    NoTurn(Duration),
    #[error("the database server cannot be reached at the moment")]
    Unreachable(#[source] ConnectError),
    #[error("the database server closed the connection during the login")]
    ServerLost,
    #[error("the database server sent a message that has no place in a login")]
    ServerErred,
    #[error(
        "the server does not answer as PostgreSQL does; is this PostgreSQL? --protocol mysql is for MySQL and MariaDB"
    )]
    NotPostgres,
    #[error("expected a password message, got '{}'", .0.escape_ascii())]
    NoAnswer(u8),
    #[error("the database server asks for {0} authentication, which cannot be relayed")]
    Method(&'static str),
    #[error("the database server lets logins in without a password")]
    TrustRelay,
    #[error("password authentication failed for user \"{0}\"")]
    Password(String),
    #[error(transparent)]
    Sasl(ExchangeError),
    #[error("too many failed logins from this address")]
    TooManyFailures,
    #[error("the gate cannot log in to the database server for this user: {0}")]
    ServerLogin(String),
    #[error("the gate cannot look up users at the moment")]
    AuthQuery(String),
    #[error("too many logins wait for the gate to look up their users")]
    AuthQueryBusy,
    #[error("the gate is shutting down")]
    ShuttingDown,
    #[error("not allowed to use gatekeeper's console")]
    ConsoleForbidden,
    #[error("too many visitors of gatekeeper's console")]
    ConsoleFull,
}

impl Refusal {
    /// The cause under which a login that failed so is counted.
    pub(crate) fn cause(&self) -> Cause {
        match self {
            Self::TooManyClients(_) | Self::TooManyOf { .. } => Cause::Full,
            Self::Password(_) => Cause::Denied,
            Self::TooManyFailures => Cause::Limited,
            Self::Timeout | Self::ServerSilent(_) | Self::NoTurn(_) => Cause::Late,
            _ => Cause::Other,
        }
    }

    /// The SQLSTATE that the client is told.
    pub(crate) fn sqlstate(&self) -> &'static str {
        match self {
            Self::Startup(error) => error.sqlstate(),
            Self::Replication => "0A000",
            Self::TooManyClients(_)
            | Self::TooManyOf { .. }
            | Self::NoConnection { .. }
            | Self::NoTurn(_)
            | Self::Join(_)
            | Self::TooManyFailures
            | Self::AuthQueryBusy
            | Self::ConsoleFull => "53300",
            Self::Password(_) => "28P01",
            Self::Timeout => "57014",
            // Drivers that know several hosts try the next one.
            Self::Unreachable(_) | Self::ServerSilent(_) | Self::ShuttingDown => "57P03",
            Self::ServerLost => "08006",
            Self::ServerErred | Self::NotPostgres | Self::NoAnswer(_) | Self::Sasl(_) => "08P01",
            Self::Method(_)
            | Self::TrustRelay
            | Self::ServerLogin(_)
            | Self::AuthQuery(_)
            | Self::ConsoleForbidden
            | Self::TlsRequired
            | Self::CertificateName { .. }
            | Self::ChannelBinding => "28000",
        }
    }

    /// More about it, as far as a client that hasn't authenticated may know.
    fn detail(&self) -> Option<String> {
        match self {
            Self::TrustRelay => Some(
                "The server sees the gate's address, not yours. Its rule for trusted addresses would let in everybody \
                 who reaches the gate."
                    .to_owned(),
            ),
            Self::ChannelBinding => Some(
                "Both the gate and the server speak TLS, and the client took part in SCRAM as one that could bind the \
                 login to the server's certificate. The server would take the gate between them for an attacker."
                    .to_owned(),
            ),
            _ => None,
        }
    }

    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Replication => {
                "Set pooling = \"session\" for this gate, or connect to the server directly for replication."
            }
            Self::TooManyClients(_) => "Close idle clients, or raise max_clients of this gate.",
            Self::TooManyOf { .. } => "Close idle clients of the same kind, or raise this bound of the gate.",
            Self::NoConnection { .. } => {
                "With pooling = \"session\" each client keeps a server connection: close clients, raise connections or \
                 use pooling = \"transaction\"."
            }
            Self::Join(JoinError::Held { .. }) => {
                "Raise connections of this gate above the number of different users, databases and start-up settings."
            }
            Self::Join(JoinError::TooManyPools) => {
                "Connect with fewer different users, databases or start-up settings."
            }
            Self::TlsRequired => "Connect with sslmode=require or above (tls_mode of this gate asks for it).",
            Self::CertificateName { .. } => {
                "With tls_mode = \"verify-full\" the common name of the client's certificate must be the user's name."
            }
            Self::ChannelBinding => {
                "Set channel_binding=disable in the client, give the gate the server's own certificate and key \
                 (tls_cert, tls_key), or set upstream_tls_mode = \"disable\" on a network that you trust."
            }
            Self::Method("SCRAM-SHA-256-PLUS") => {
                "A login bound to its TLS channel cannot be relayed: have pg_hba.conf offer scram-sha-256 without \
                 channel binding to the gate's address, or set channel_binding=disable in the client."
            }
            Self::Method(_) => {
                "Have pg_hba.conf ask for scram-sha-256 (or md5, password) from the gate's address."
            }
            Self::TrustRelay => {
                "Have pg_hba.conf ask for scram-sha-256 from the gate's address, or set allow_trust_relay = true if only \
                 trusted machines can reach the gate."
            }
            Self::ConsoleForbidden => "Name the user in admin_users or stats_users of this gate.",
            Self::TooManyFailures => {
                "Correct the password and wait for a minute; login_failures_max of this gate is the bound."
            }
            Self::ServerLogin(_) => {
                "Keep what the server asks for in users_file: the password, or the server's own secret of this user."
            }
            Self::AuthQuery(_) => "The gate's log says why: see auth_query and auth_user.",
            _ => return None,
        })
    }

    /// Appends the FATAL ErrorResponse.
    pub(crate) fn write(&self, out: &mut BytesMut) {
        let (message, detail) = (self.to_string(), self.detail());
        let error = Error {
            severity: Severity::Fatal,
            code: self.sqlstate(),
            message: &message,
            detail: detail.as_deref(),
            hint: self.hint(),
        };
        write_error(out, &error);
    }
}

fn owner(name: Option<&str>) -> String {
    let nobody = || "has no common name and so is nobody's".to_owned();
    name.map_or_else(nobody, |name| format!("is \"{}\"'s", name.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_another_user_or_of_nobody_is_refused_in_plain_words() {
        let refused = |name: Option<&str>| {
            Refusal::CertificateName { name: name.map(str::to_owned), user: "ann".to_owned() }.to_string()
        };
        assert_eq!(refused(Some("bob")), "the client's certificate is \"bob\"'s, not user \"ann\"'s");
        let nobody = "the client's certificate has no common name and so is nobody's, not user \"ann\"'s";
        assert_eq!(refused(None), nobody);
    }
}
