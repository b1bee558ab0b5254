//! The keys of every `[[gate]]`: where it stands, what it decides by (in `policy`), and how it connects
//! both sides. Those of one protocol are in `postgres` and `http`.

use super::Field;
use super::FieldDefault::{Derived, Each, Required, Value};
use super::Form;
use super::http::HTTP;
use super::policy::POLICY;
use super::postgres::POSTGRES;

/// The keys that every gate has.
pub const COMMON: &[Field] =
    &joined::<{ PLACE.len() + POLICY.len() + CONNECTIONS.len() }>([PLACE, POLICY, CONNECTIONS]);

/// The keys of a `[[gate]]`, of whatever protocol.
pub const GATE: &[Field] =
    &joined::<{ COMMON.len() + POSTGRES.len() + HTTP.len() }>([COMMON, POSTGRES, HTTP]);

/// What it is called, and where it stands.
const PLACE: &[Field] = &[
    Field {
        key: "name",
        form: Form::Text,
        takes: "letters, digits, `-` and `_`, at most 64",
        default: Each("\"postgres\"", "\"mysql\"", "\"http\""),
        doc: "The gate's name in metrics, logs and commands; unique.",
        reason: "With one gate a name is only a label.",
        reloadable: false,
    },
    Field {
        key: "protocol",
        form: Form::Any,
        takes: "`\"postgres\"`, `\"mysql\"` (also for MariaDB) or `\"http\"`",
        default: Value("\"postgres\""),
        doc: "What the protected service speaks.",
        reason: "In front of the database one gate protects all that use it.",
        reloadable: false,
    },
    Field {
        key: "listen",
        form: Form::Text,
        takes: "`\"host:port\"`, a socket directory or `\"unix:/path\"`",
        default: Each("\"127.0.0.1:6432\"", "\"127.0.0.1:6033\"", "\"127.0.0.1:8081\""),
        doc: "Where clients connect. With PostgreSQL the socket in a directory is `.s.PGSQL.6432`, so that `psql -h DIRECTORY -p 6432` finds it.",
        reason: "Loopback, because every client that reaches the gate reaches the service. 6432 and 6033 are the usual ports of poolers.",
        reloadable: false,
    },
    Field {
        key: "upstream",
        form: Form::Text,
        takes: "`\"host:port\"` or `\"unix:/path\"`; for PostgreSQL a socket directory, too; for HTTP also `\"http://host\"`, `\"https://host\"`, or a list of all these",
        default: Required,
        doc: "The address of the protected service, without user and password. For HTTP up to 64 endpoints: a request goes to the healthy one with the fewest in flight.",
        reason: "It can't be guessed.",
        reloadable: true,
    },
    Field {
        key: "connections",
        form: Form::Any,
        takes: "1 to 10000; for PostgreSQL also `\"auto\"`, which is 72 in a scenario",
        default: Each("\"auto\"", "20", "200"),
        doc: "For a database the budget of server connections of the whole gate, over all users and databases. For HTTP the most requests in the service at once, over all endpoints. A client that waits holds none. `\"auto\"` asks the server: of the free connections a quarter and at least 3 stay free, and the gate has the rest (1,000 at most). ([More](../guide/operations.md#how-many-connections).) With PostgreSQL up to four more connections prepare statements.",
        reason: "Too few make requests wait although the server is idle; one too many costs little, because `capacity` finds how many requests may be in flight. A number must stay below the server's `max_connections` (100 by default) less what others use. With HTTP set it to what your application serves at once (processes times threads).",
        reloadable: true,
    },
];

/// How it connects clients and the service, and what it keeps.
const CONNECTIONS: &[Field] = &[
    Field {
        key: "mode",
        form: Form::Any,
        takes: "`\"enforce\"` or `\"observe\"`",
        default: Value("\"enforce\""),
        doc: "Whether the gate decides, or lets everything pass and reports what it would have done. An observing gate has no budget of connections (and, for PostgreSQL, session pooling). A response over HTTP says in `X-Gatekeeper-Observed` what would have become of its request.",
        reason: "Observe first where you are not sure.",
        reloadable: false,
    },
    Field {
        key: "max_clients",
        form: Form::Any,
        takes: "1 to 1000000",
        default: Value("10000"),
        doc: "The most clients connected at once. One more is refused. Each takes a file descriptor.",
        reason: "Connections to the gate are cheap, so this only bounds memory.",
        reloadable: true,
    },
    Field {
        key: "connect_timeout",
        form: Form::Any,
        takes: "a duration up to 24 h",
        default: Value("\"5s\""),
        doc: "How long connecting to the server may take, over all of its addresses.",
        reason: "Above a lost packet's retries, below what a client waits.",
        reloadable: true,
    },
    Field {
        key: "dns_ttl",
        form: Form::Any,
        takes: "a duration from 0 up to 24 h",
        default: Value("\"15s\""),
        doc: "How often the server's name is looked up, and how long an answer is used (longer while the resolver fails). All addresses of an answer are tried. In front of PostgreSQL an idle connection to an address that two answers in a row lack is closed. 0: looked up for every connection, and none is closed.",
        reason: "A fail-over by DNS is followed within half a minute. Set 0 for a name whose answer is another of many servers each time.",
        reloadable: true,
    },
    Field {
        key: "keepalive",
        form: Form::Any,
        takes: "a duration from 1 s up to 24 h",
        default: Value("\"60s\""),
        doc: "How long a TCP connection may be silent before the system asks whether the other side still lives.",
        reason: "Below the time after which routers forget a silent connection.",
        reloadable: false,
    },
    Field {
        key: "tls_mode",
        form: Form::Any,
        takes: "`\"disable\"`, `\"prefer\"` (or `\"allow\"`), `\"require\"`, `\"verify-ca\"` or `\"verify-full\"`",
        default: Derived("with a `tls_cert` `\"prefer\"`, or `\"require\"` for HTTP; `\"disable\"` without"),
        doc: "TLS with clients that come by TCP. In this order: for no client, for clients that ask, for all, for all with a certificate that `tls_client_ca` has signed, for all with one whose common name is also the user's name. For HTTP `\"disable\"`, `\"require\"` or `\"verify-ca\"`; clients that ask for HTTP/2 get it. Cancel requests are taken in the clear in any mode, because older clients send no others.",
        reason: "Clients choose; demand TLS where the network isn't trusted.",
        reloadable: true,
    },
    Field {
        key: "tls_cert",
        form: Form::Text,
        takes: "a path; for HTTP also a list of paths",
        default: Derived("none"),
        doc: "The gate's certificate for clients: a PEM file, followed by the intermediate certificates. Of several each client gets the first for the name that it asks for (SNI), or the first of all. Read again on reload.",
        reason: "Channel binding works through a gate that relays logins only with the server's own certificate and key. A gate that authenticates clients binds to any certificate but Ed25519's.",
        reloadable: true,
    },
    Field {
        key: "tls_key",
        form: Form::Text,
        takes: "a path; for HTTP also a list, as long as that of `tls_cert`",
        default: Derived("none"),
        doc: "The private key of `tls_cert`: a PEM file without a passphrase, which only its owner can read (0600, or 0640 if root owns it). Read again on reload.",
        reason: "A thief of the key can pose as the gate.",
        reloadable: true,
    },
    Field {
        key: "tls_client_ca",
        form: Form::Text,
        takes: "a path",
        default: Derived("none: clients are asked for no certificate"),
        doc: "The authorities that sign clients' certificates (PEM). A client that shows one is refused unless it is signed by these, whatever the mode; `verify-ca` and `verify-full` refuse clients that show none. Read again on reload.",
        reason: "Few installations issue certificates to clients.",
        reloadable: true,
    },
    Field {
        key: "upstream_tls_mode",
        form: Form::Any,
        takes: "`\"disable\"`, `\"allow\"`, `\"prefer\"`, `\"require\"`, `\"verify-ca\"` or `\"verify-full\"`",
        default: Derived(
            "`\"verify-full\"` with an `upstream_tls_ca`; else `\"disable\"` for a server on this machine and for HTTP, and `\"prefer\"` for any other; an `https://` upstream must be told one of both keys",
        ),
        doc: "TLS with the server, with the meaning of libpq's `sslmode` (for HTTP `\"disable\"`, `\"require\"`, `\"verify-ca\"` or `\"verify-full\"`). `require` keeps out an attacker who listens; only `verify-full` keeps out one who can change packets. SCRAM with TLS on both sides [needs more](../guide/operations.md#tls).",
        reason: "libpq's own default, except where the bytes don't leave the machine.",
        reloadable: true,
    },
    Field {
        key: "upstream_tls_ca",
        form: Form::Text,
        takes: "a path",
        default: Derived("none"),
        doc: "The authorities that sign the server's certificate (PEM). A server's certificate in this file is trusted, too. `\"require\"` then means `\"verify-ca\"`, as in libpq. Read again on reload.",
        reason: "Public authorities sign few services behind a gate. Where they do: `/etc/ssl/certs/ca-certificates.crt` (Debian's path).",
        reloadable: true,
    },
    Field {
        key: "upstream_tls_cert",
        form: Form::Text,
        takes: "a path",
        default: Derived("none"),
        doc: "The gate's certificate for the server, should it ask (`clientcert` and `cert` in pg_hba.conf). Read again on reload.",
        reason: "Few servers ask.",
        reloadable: true,
    },
    Field {
        key: "upstream_tls_key",
        form: Form::Text,
        takes: "a path",
        default: Derived("none"),
        doc: "The private key of `upstream_tls_cert`, under the rules of `tls_key`. Read again on reload.",
        reason: "Few servers ask.",
        reloadable: true,
    },
    Field {
        key: "drain_timeout",
        form: Form::Any,
        takes: "a duration from 0 up to 24 h",
        default: Value("\"30s\""),
        doc: "After SIGTERM: how long transactions and requests may take to end before they are cut off. A second signal cuts them off at once.",
        reason: "What process managers allow before they kill.",
        reloadable: true,
    },
    Field {
        key: "state_file",
        form: Form::Text,
        takes: "an absolute path, or `\"none\"`",
        default: Value("\"none\""),
        doc: "A file that keeps across restarts what was learned of request types, and the shares that goals of classes have found. It holds shapes of statements and paths, never a literal. It is written every minute and at the end. A file that can't be used is put aside with a warning.",
        reason: "The operator decides where a service may write. Without it a restarted gate learns anew, one request of each type at a time.",
        reloadable: false,
    },
    Field {
        key: "trace_file",
        form: Form::Text,
        takes: "an absolute path, or `\"none\"`",
        default: Value("\"none\""),
        doc: "A file with a record of each request, for `gatekeeper replay`: when it came, its type, how long it waited and ran. It holds shapes of statements and paths, never a literal. A file that is there at the start goes to `FILE.1`.",
        reason: "A trace takes some 35 bytes a request.",
        reloadable: false,
    },
    Field {
        key: "trace_max",
        form: Form::Any,
        takes: "1 to 1000000 megabytes",
        default: Value("256"),
        doc: "The longest `trace_file`.",
        reason: "Seven million requests: hours of most services.",
        reloadable: false,
    },
    Field {
        key: "trace_full",
        form: Form::Any,
        takes: "`\"stop\"` or `\"rotate\"`",
        default: Value("\"stop\""),
        doc: "What happens when the `trace_file` is full: nothing more is written, or it replaces `FILE.1` and another one begins.",
        reason: "An experiment needs its beginning. Rotate to keep the latest requests, at twice the length.",
        reloadable: false,
    },
    Field {
        key: "types_max",
        form: Form::Any,
        takes: "1 to 10000",
        default: Value("1000"),
        doc: "The most request types known at once; the least recently used one is counted as `other`. Each takes about 10 KB.",
        reason: "Applications have some hundred statements or routes; more are usually generated.",
        reloadable: false,
    },
    Field {
        key: "suspend_after",
        form: Form::Any,
        takes: "a duration from 0 up to 24 h",
        default: Value("\"1s\""),
        doc: "A transaction that is idle for longer gives back its share of the capacity (not its connection) until its next statement. Over HTTP a request does so while its client takes nothing of the response.",
        reason: "Application code between two statements takes milliseconds. After a second a person is thinking.",
        reloadable: true,
    },
];

/// The parts in one piece, as the reference page shows them.
const fn joined<const N: usize>(parts: [&[Field]; 3]) -> [Field; N] {
    let mut whole = [PLACE[0]; N];
    let (mut part, mut written) = (0, 0);
    while part < parts.len() {
        let mut next = 0;
        while next < parts[part].len() {
            whole[written] = parts[part][next];
            (next, written) = (next + 1, written + 1);
        }
        part += 1;
    }
    whole
}
