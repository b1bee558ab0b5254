//! The keys of a configuration: what each takes, its default, and why, all in one place.
//!
//! The default of a key is the text that stands here: the reader parses it when the key is absent, and the reference page
//! prints it. So the two can't disagree.
//!
//! Why not serde: it stops at the first error and can't say of an unknown key what was meant. A person who edits a file
//! wants to hear everything at once, with lines. The price is one call per key in `checked`.

use toml::de::DeValue;

mod scenario;
mod section;
mod values;

pub use scenario::{SCENARIO, SOURCE, SWEEP, TYPE, UPSTREAM};
pub(crate) use section::{Section, hint_for_unknown, literal, unknown_key};
pub(crate) use values::CONTROLLERS;
pub(crate) use values::{
    Complaint, aging, amount, amount_or_steps, at_most_a_day, boolean, bound, capacity, choice, curve,
    integer, list, long_limit, long_time, some_text, some_time, steps, text, time_or_none, users, weights,
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
}

/// What holds when a key is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldDefault {
    /// This TOML value.
    Value(&'static str),
    /// Something derived, in words.
    Derived(&'static str),
    /// Nothing: the key must be there.
    Required,
}

impl Field {
    /// Its default as a TOML value.
    pub(crate) fn default_value(&self) -> Option<DeValue<'static>> {
        let Value(text) = self.default else { return None };
        let value = DeValue::parse(text).expect("a test parses every default");
        Some(value.into_inner())
    }
}

use FieldDefault::{Derived, Required, Value};

/// The keys of `[admin]`.
pub const ADMIN: &[Field] = &[
    Field {
        key: "listen",
        form: Form::Text,
        takes: "`\"host:port\"` or `\"none\"`",
        default: Value("\"127.0.0.1:6433\""),
        doc: "Where `/metrics`, `/healthz`, `/readyz`, `/status` and `/types` are served over HTTP. Changes are refused there without a `token_file`.",
        reason: "Loopback, because it asks nobody who they are: request types tell the shape of your statements, though never a literal. The port after the gate's.",
        reloadable: false,
    },
    Field {
        key: "socket",
        form: Form::Text,
        takes: "an absolute path, as `\"/run/gatekeeper/admin.sock\"` or `\"unix:/path\"`, or `\"none\"`",
        default: Value("\"none\""),
        doc: "A Unix socket where the same is served, and changes are taken too (`gatekeeper calibrate`): who may open it may change a gate.",
        reason: "Where a service may write is the operator's to say (with systemd: `RuntimeDirectory=gatekeeper`).",
        reloadable: false,
    },
    Field {
        key: "socket_mode",
        form: Form::Text,
        takes: "`\"0600\"` or `\"0660\"`",
        default: Value("\"0600\""),
        doc: "Who may open the `socket`: its owner, or its group as well.",
        reason: "Who may change a gate can stop the service.",
        reloadable: false,
    },
    Field {
        key: "token_file",
        form: Form::Text,
        takes: "a path, or `\"none\"`",
        default: Value("\"none\""),
        doc: "A file with a token of 16 to 1024 characters without spaces: a change over `listen` is taken from who sends it (`Authorization: Bearer …`). Refused if others can read the file. Read again on reload.",
        reason: "Without one nobody on the network can change anything. What is sent isn't encrypted: beyond loopback put something in between that is.",
        reloadable: true,
    },
];

/// The keys of `[log]`.
pub const LOG: &[Field] = &[
    Field {
        key: "format",
        form: Form::Any,
        takes: "`\"text\"` or `\"json\"`",
        default: Value("\"text\""),
        doc: "How a line of the log is written (to standard error).",
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

/// The keys of a `[[gate]]`.
pub const GATE: &[Field] = &[
    Field {
        key: "name",
        form: Form::Text,
        takes: "letters, digits, `-` and `_`, at most 64",
        default: Value("\"postgres\""),
        doc: "The gate's name in metrics, logs and commands; unique.",
        reason: "With one gate a name is only a label.",
        reloadable: false,
    },
    Field {
        key: "protocol",
        form: Form::Any,
        takes: "`\"postgres\"`",
        default: Value("\"postgres\""),
        doc: "What the protected service speaks.",
        reason: "The only one there is so far.",
        reloadable: false,
    },
    Field {
        key: "listen",
        form: Form::Text,
        takes: "`\"host:port\"`, a socket directory or `\"unix:/path\"`",
        default: Value("\"127.0.0.1:6432\""),
        doc: "Where clients connect. In a directory the socket is `.s.PGSQL.6432`, so that `psql -h DIRECTORY -p 6432` finds it.",
        reason: "Loopback, because logins are only as safe as the server's own rules; the port that poolers use.",
        reloadable: false,
    },
    Field {
        key: "upstream",
        form: Form::Text,
        takes: "`\"host:port\"`, a socket directory or `\"unix:/path\"`",
        default: Required,
        doc: "Where the protected server listens. No user and no password: every client logs in to the server as itself, through the gate (or by it, see `auth`).",
        reason: "It can't be guessed.",
        reloadable: true,
    },
    Field {
        key: "connections",
        form: Form::Any,
        takes: "1 to 10000",
        default: Value("20"),
        doc: "The budget of server connections of the whole gate, over all users and databases. A client that waits holds none.",
        reason: "A few per core keeps a server busy; each more costs it memory and, under contention, throughput. Must stay below the server's `max_connections` (100 by default) less what others use.",
        reloadable: true,
    },
    Field {
        key: "capacity",
        form: Form::Any,
        takes: "an amount of work as a duration, `\"none\"`, or who finds it: `\"auto\"`, `\"incremental-steps\"`, `\"parabola\"`, `\"vegas\"`, `\"gradient2\"`, `\"aimd\"`",
        default: Value("\"none\""),
        doc: "How much may be in flight, beside the connections and the long lane. An amount: the sum of what the requests in flight are expected to take, in the unit of the estimator (`cost`); a request that is larger runs when nothing else is in flight. `\"auto\"`: so many requests as complete the most work, found by trials while requests wait; below saturation it bounds nothing. The others are published methods, to compare with.",
        reason: "A bound that short requests queue behind makes things worse below saturation, unless the service really thrashes. Where a service collapses (locks, deadlocks, memory) a lower bound completes several times as much, and nobody knows which one beforehand; where it doesn't, `auto` stays at the budget of connections.",
        reloadable: true,
    },
    Field {
        key: "contention",
        form: Form::Any,
        takes: "`\"auto\"` or `\"none\"`",
        default: Value("\"none\""),
        doc: "What is done about types that contend with one another: for hot rows, or one lock. `\"auto\"`: they are found while requests wait, by trials, and are held back together, in a number that completes the most work; the other types pass. Forgotten when it passes. The log says which types, why, and how many.",
        reason: "Nothing is done that was not asked for: below saturation `auto` does nothing, in an overload without contention its trials cost about one percent. With hot rows it completes several times as much, and spares those that have nothing to do with them: recommended wherever a few rows can become everybody's, with `capacity = \"auto\"` or without.",
        reloadable: true,
    },
    Field {
        key: "long_limit",
        form: Form::Any,
        takes: "`\"auto\"`, 1 to 10000, or 0 or `\"none\"` for no long lane",
        default: Value("\"auto\""),
        doc: "The most long requests in flight. A request is long if its type is expected to take more than 3 times the mean; short ones never wait behind it. A type that varies too much within itself (coefficient of variation above 1.3) isn't limited. `\"auto\"`: as many as keep the service busy, found from how long requests take beside others, whatever its cores, disks and round trips; until that is known, as many as the server has cores if it tells, else no limit but three quarters of the connections.",
        reason: "As many long requests as cores keep every core busy, a few more where they wait for disks; more only slow one another and the short ones. Nobody knows the number, and it changes with the machine.",
        reloadable: true,
    },
    Field {
        key: "order",
        form: Form::Any,
        takes: "`\"fifo\"` or `\"shortest-first\"`",
        default: Value("\"shortest-first\""),
        doc: "Who goes next of those that wait: the first to come, or the one expected to take least, within the bounds of `aging`.",
        reason: "Near saturation the mean response time is several times better, and aging bounds what a long request pays.",
        reloadable: true,
    },
    Field {
        key: "aging",
        form: Form::Any,
        takes: "a number from 0, or `\"none\"`",
        default: Value("3"),
        doc: "With `order = \"shortest-first\"`: a waiting request may be overtaken by at most this many times its own work (or by `aging_floor`, if that is more). 0 is FIFO; `\"none\"` lets it be overtaken without bound.",
        reason: "The largest of the values that the Gatekeeper paper tried (1, 3, 5): most of the gain, and still a bound.",
        reloadable: true,
    },
    Field {
        key: "aging_floor",
        form: Form::Any,
        takes: "a duration from 0",
        default: Value("\"1s\""),
        doc: "How long overtaking may delay any waiting request, however short it is itself. In work that is as many times as much as there are `connections`, which serve side by side.",
        reason: "5 times 0.4 ms would bind at once, and the order would be FIFO just when it matters; a second is what people notice.",
        reloadable: true,
    },
    Field {
        key: "cost",
        form: Form::Any,
        takes: "`\"moving-average\"`, `\"ewma\"` or `\"steady\"`",
        default: Value("\"moving-average\""),
        doc: "How the work of a request type is estimated: from the upstream times of its latest executions, or (`\"steady\"`) from what those would have taken alone. Upstream times grow with what is in flight, and fall when it does; a steady estimate stays, and a type that was learned while the server was overloaded isn't thought to be long for ever. How fast the server works with how many in flight is learned for that.",
        reason: "The published method: plain, and it forgets an outlier for good after `cost_window` executions.",
        reloadable: true,
    },
    Field {
        key: "cost_window",
        form: Form::Any,
        takes: "1 to 1024 executions",
        default: Value("32"),
        doc: "How many executions the moving average is taken over. With `cost = \"ewma\"` the newest execution weighs 2 / (`cost_window` + 1), which gives the same mean age. `\"steady\"` has a memory of its own, 256 executions.",
        reason: "An estimate within 9 % where executions vary by half of their mean, 18 % where they vary by all of it; more would see the load change too late.",
        reloadable: true,
    },
    Field {
        key: "queue_max",
        form: Form::Any,
        takes: "0 to 10000000 requests",
        default: Value("100000"),
        doc: "The most requests that may wait; one more is refused at once. 0 refuses whatever can't start at once.",
        reason: "Large enough that time refuses before length does, small enough to bound memory.",
        reloadable: true,
    },
    Field {
        key: "queue_timeout",
        form: Form::Any,
        takes: "a duration up to 24 h",
        default: Value("\"120s\""),
        doc: "The longest that a request may wait before it is refused.",
        reason: "Longer than nearly anybody waits; lower it to what your callers wait for.",
        reloadable: true,
    },
    Field {
        key: "target",
        form: Form::Any,
        takes: "a duration",
        default: Derived("none"),
        doc: "The mean response time (queue wait and upstream time) to hold, by refusing at once what would exceed it. Every type is refused alike. Below what the service can do in that time nobody is.",
        reason: "What your callers can bear, nobody else knows. It should be several times what a request takes when the service is idle: below that nothing can hold it.",
        reloadable: true,
    },
    Field {
        key: "target_p95",
        form: Form::Any,
        takes: "a duration",
        default: Derived("none"),
        doc: "The response time that 95 % of all requests stay below, held in the same way. With both targets the stricter one binds.",
        reason: "A mean says little to who waits; 5 % late is what a promise usually allows.",
        reloadable: true,
    },
    Field {
        key: "rejection",
        form: Form::Any,
        takes: "`\"none\"`, `\"target\"`, `\"deadline\"`, `\"codel\"` or `\"yaksha\"`",
        default: Derived("`\"target\"` with a `target` or a `target_p95`, else `\"none\"`"),
        doc: "Who is refused, beside those for whom the queue is full and those who have waited for `queue_timeout`. `\"target\"`: who would make the response time exceed the target. `\"deadline\"`: at once, who can't make its own deadline given the queue ahead (for PostgreSQL: the statement timeout that the session has set). `\"codel\"`: who is next, while everybody has waited for too long. `\"yaksha\"`: at random, with the probability that holds the mean response time at `target`. The last two are published methods, to compare with.",
        reason: "A target is stated to be held; without one, time and length refuse what is hopeless.",
        reloadable: true,
    },
    Field {
        key: "codel_target",
        form: Form::Any,
        takes: "a duration",
        default: Value("\"5ms\""),
        doc: "With `rejection = \"codel\"`: a queue wait that is too long if even the shortest of a `codel_interval` is.",
        reason: "As published (RFC 8289); 5 % of the interval.",
        reloadable: true,
    },
    Field {
        key: "codel_interval",
        form: Form::Any,
        takes: "a duration",
        default: Value("\"100ms\""),
        doc: "With `rejection = \"codel\"`: for how long every wait must be too long before the first request is refused.",
        reason: "As published: about the longest round trip of the internet. Where requests take longer than 5 ms, raise both alike.",
        reloadable: true,
    },
    Field {
        key: "yaksha_arrivals",
        form: Form::Any,
        takes: "requests per second above 0",
        default: Value("50"),
        doc: "With `rejection = \"yaksha\"`: the load λ₀ that the controller is designed for.",
        reason: "The capacity of the site in the paper; a self-tuned controller goes on from there.",
        reloadable: true,
    },
    Field {
        key: "yaksha_tuning",
        form: Form::Any,
        takes: "`\"self\"` or `\"static\"`",
        default: Value("\"self\""),
        doc: "With `rejection = \"yaksha\"`: whether the gains follow what is let in, or stay those of `yaksha_arrivals`.",
        reason: "What the paper proposes; the other is what it compares with.",
        reloadable: true,
    },
    Field {
        key: "yaksha_interval",
        form: Form::Any,
        takes: "a duration",
        default: Value("\"1s\""),
        doc: "With `rejection = \"yaksha\"`: from one step of the controller to the next.",
        reason: "The paper doesn't say; ten steps in its time constant of 10 s.",
        reloadable: true,
    },
    Field {
        key: "yaksha_smoothing",
        form: Form::Any,
        takes: "a duration",
        default: Value("\"10s\""),
        doc: "With `rejection = \"yaksha\"`: over how long response times are smoothed.",
        reason: "The paper doesn't say; what it plots is smoothed over 10 s.",
        reloadable: true,
    },
    Field {
        key: "yaksha_averaging",
        form: Form::Any,
        takes: "a duration",
        default: Value("\"10s\""),
        doc: "With `rejection = \"yaksha\"`: over how long the share of requests that are let in is averaged, to tune.",
        reason: "As published: long enough for the share to converge.",
        reloadable: true,
    },
    Field {
        key: "mode",
        form: Form::Any,
        takes: "`\"enforce\"` or `\"observe\"`",
        default: Value("\"enforce\""),
        doc: "Whether the gate decides, or lets everything pass and reports what it would have done. Observing uses session pooling and no budget of connections.",
        reason: "Protection is what it is for; observe first where you are not sure.",
        reloadable: false,
    },
    Field {
        key: "pooling",
        form: Form::Any,
        takes: "`\"transaction\"` or `\"session\"`",
        default: Value("\"transaction\""),
        doc: "Whether a client holds a server connection for each transaction or for its whole session.",
        reason: "With sessions, idle clients hold the connections that the budget protects.",
        reloadable: false,
    },
    Field {
        key: "pinned_max",
        form: Form::Any,
        takes: "1 to `connections`",
        default: Derived("half of `connections`, at least 1"),
        doc: "The most connections that sessions may keep to themselves because their state can't be shared (temporary tables, session advisory locks, `LISTEN` …). A statement that would pin one more is refused.",
        reason: "Sessions that keep connections must not starve those that share.",
        reloadable: true,
    },
    Field {
        key: "max_clients",
        form: Form::Any,
        takes: "1 to 1000000",
        default: Value("10000"),
        doc: "The most clients connected at once; one more is told so and closed. Each takes a file descriptor.",
        reason: "Connections to the gate are cheap, so this only bounds memory.",
        reloadable: true,
    },
    Field {
        key: "login_timeout",
        form: Form::Any,
        takes: "a duration up to 24 h",
        default: Value("\"15s\""),
        doc: "How long a client may take to log in.",
        reason: "A person types a password before connecting; programs take milliseconds.",
        reloadable: true,
    },
    Field {
        key: "connect_timeout",
        form: Form::Any,
        takes: "a duration up to 24 h",
        default: Value("\"5s\""),
        doc: "How long connecting to the server may take, over all of its addresses.",
        reason: "Above a lost packet's retries, below what a client waits for a login.",
        reloadable: true,
    },
    Field {
        key: "logins_max",
        form: Form::Any,
        takes: "1 to 10000",
        default: Value("16"),
        doc: "The most logins at once. They take server connections beside the budget of `connections`, until they join a pool. Of those that wait, the next is from where fewest are under way; a quarter is kept from an address that has the others.",
        reason: "A server hashes passwords on its own cores: a storm of logins must not take them all.",
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
        default: Derived("`\"prefer\"` with a `tls_cert`, `\"disable\"` without"),
        doc: "TLS with clients that come by TCP: none, for who asks for it, for all, for all with a certificate that `tls_client_ca` has signed, or with one whose common name is also the user's name. Cancel requests are taken in the clear in any mode, as older clients send no others.",
        reason: "A certificate is given to be used, and the clients choose; demand it where the network isn't trusted.",
        reloadable: true,
    },
    Field {
        key: "tls_cert",
        form: Form::Text,
        takes: "a path",
        default: Derived("none"),
        doc: "The gate's certificate for clients: a PEM file, with those between it and its root behind it. Read again on reload.",
        reason: "A certificate belongs to a name, which can't be guessed. With the server's own (and its key) channel binding works through a gate that relays; one that authenticates clients itself binds to any certificate that has a hash in its signature (not Ed25519).",
        reloadable: true,
    },
    Field {
        key: "tls_key",
        form: Form::Text,
        takes: "a path",
        default: Derived("none"),
        doc: "The private key of `tls_cert`: a PEM file without a passphrase, which only its owner can read (0600, or 0640 if root owns it). Read again on reload.",
        reason: "Who reads it can be the gate.",
        reloadable: true,
    },
    Field {
        key: "tls_client_ca",
        form: Form::Text,
        takes: "a path",
        default: Derived("none: clients are asked for no certificate"),
        doc: "Who signs clients' certificates (PEM). A client that shows one is refused unless it is signed by these, whatever the mode; `verify-ca` and `verify-full` refuse clients that show none. Read again on reload.",
        reason: "Certificates for clients are for those who issue them.",
        reloadable: true,
    },
    Field {
        key: "upstream_tls_mode",
        form: Form::Any,
        takes: "`\"disable\"`, `\"allow\"`, `\"prefer\"`, `\"require\"`, `\"verify-ca\"` or `\"verify-full\"`",
        default: Derived(
            "`\"verify-full\"` with an `upstream_tls_ca`; else `\"disable\"` for a server on this machine and `\"prefer\"` for any other",
        ),
        doc: "TLS with the server, with the meaning of libpq's `sslmode`: only `verify-full` keeps out who can change packets on the way, and `require` only who listens. A login by SCRAM is not relayed from a client with TLS to a server with TLS, unless the client has `channel_binding=disable` or the gate has the server's certificate.",
        reason: "libpq's own default, save where the bytes don't leave the machine.",
        reloadable: true,
    },
    Field {
        key: "upstream_tls_ca",
        form: Form::Text,
        takes: "a path",
        default: Derived("none"),
        doc: "Who signs the server's certificate (PEM); a certificate in this file is trusted itself, too. With `\"require\"` it makes that `\"verify-ca\"`, as in libpq. Read again on reload.",
        reason: "The authorities that browsers trust sign few database servers.",
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
        key: "dns_ttl",
        form: Form::Any,
        takes: "a duration from 0 up to 24 h",
        default: Value("\"15s\""),
        doc: "How often the server's name is looked up, and how long an answer is used (for longer while the resolver fails). All addresses of an answer are tried. A connection to an address that two answers in a row lack is closed when it is idle. 0: looked up for every connection, and no connection is closed.",
        reason: "A fail-over by DNS is followed within half a minute. Set 0 for a name that gives another of many servers each time.",
        reloadable: true,
    },
    Field {
        key: "allow_trust_relay",
        form: Form::Any,
        takes: "`true` or `false`",
        default: Value("false"),
        doc: "Start even if the server lets logins in without a challenge (`trust`) and `listen` can be reached from elsewhere.",
        reason: "To the server every client comes from the gate's address, so a rule for that address would open it to all.",
        reloadable: true,
    },
    Field {
        key: "auth",
        form: Form::Any,
        takes: "`\"relay\"`, `\"scram-sha-256\"`, `\"md5\"` or `\"trust\"`",
        default: Value("\"relay\""),
        doc: "How clients prove who they are. `\"relay\"`: the server asks them, through the gate, at each login. Otherwise the gate asks (users with a SCRAM secret are asked by SCRAM with `\"md5\"`, too; `\"trust\"` only looks whether the user is known), logs in to the server itself with what it knows or has taken over from the client's proof, and refills its pools without any login.",
        reason: "Needs no secrets and no configuration; the others make logins cheap and let pools survive the server's restart.",
        reloadable: true,
    },
    Field {
        key: "users_file",
        form: Form::Text,
        takes: "a path",
        default: Derived("none"),
        doc: "Who may log in, in PgBouncer's format: `\"user\" \"secret\"` a line, the secret being what `pg_authid.rolpassword` holds, or a password, or empty for none. Refused if everybody may read it.",
        reason: "With SCRAM secrets nobody who reads the file can log in by them, and the gate needs no more.",
        reloadable: true,
    },
    Field {
        key: "auth_user",
        form: Form::Text,
        takes: "a user's name",
        default: Derived("none: nobody is asked"),
        doc: "Looks users up on the server that `users_file` doesn't have, over a connection of its own beside `connections`. Its own password, if the server wants one, is in `users_file`.",
        reason: "Reading secrets is a right that somebody has to be given.",
        reloadable: true,
    },
    Field {
        key: "auth_database",
        form: Form::Text,
        takes: "a database's name",
        default: Value("\"postgres\""),
        doc: "Where `auth_user` asks.",
        reason: "One place for all, that exists everywhere; `pg_authid` is the same in each.",
        reloadable: true,
    },
    Field {
        key: "auth_query",
        form: Form::Text,
        takes: "a statement with `$1`",
        default: Derived(
            "name and `rolpassword` out of `pg_catalog.pg_authid`, for roles that may log in and passwords that are still valid",
        ),
        doc: "Finds a user: gets its name as `$1` and returns two columns, name and secret (as in `users_file`; NULL for none). It runs with `search_path = pg_catalog, pg_temp`, so write schemas out.",
        reason: "A role that may read four columns of `pg_authid` suffices; where even that can't be had, call a `SECURITY DEFINER` function of your own.",
        reloadable: true,
    },
    Field {
        key: "login_failures_max",
        form: Form::Any,
        takes: "1 to 1000000, or 0 or `\"none\"` for no bound",
        default: Value("100"),
        doc: "The most failed logins of one address (of IPv6: one /64) in a minute; further logins from there are refused until the minute has passed. Successful logins aren't counted.",
        reason: "Far above what people mistype, far below what guessing needs. Clients behind one address share it.",
        reloadable: true,
    },
    Field {
        key: "allow_cleartext",
        form: Form::Any,
        takes: "`true` or `false`",
        default: Value("false"),
        doc: "Send a password in clear text to a server on another machine that asks for it, without TLS.",
        reason: "Everybody on the way could read it.",
        reloadable: true,
    },
    Field {
        key: "upstream_channel_binding",
        form: Form::Any,
        takes: "`\"disable\"`, `\"prefer\"` or `\"require\"`",
        default: Value("\"prefer\""),
        doc: "Whether the gate's own logins to the server (with any `auth` but `\"relay\"`) are bound to their TLS channel, with the meaning of libpq's `channel_binding`: never, where the server offers it, or else there is no login. Who takes the server's offer away on the way is found out by `\"prefer\"`, too.",
        reason: "It costs nothing, and finds out who is in the middle even where no authority is named. Where TLS ends between the gate and the server (another pooler, a load balancer) such logins fail, and must be told not to be bound.",
        reloadable: true,
    },
    Field {
        key: "on_disconnect",
        form: Form::Any,
        takes: "`\"default\"`, `\"cancel\"` or `\"finish\"`",
        default: Value("\"default\""),
        doc: "What becomes of a running statement whose client is gone. `\"cancel\"` cancels and rolls back, `\"finish\"` lets it end, and `\"default\"` finishes a COMMIT, an autocommitted write and whatever ran when the client said good-bye, and cancels the rest.",
        reason: "An answer that nobody reads is wasted work, but a write half done is worse.",
        reloadable: true,
    },
    Field {
        key: "drain_timeout",
        form: Form::Any,
        takes: "a duration from 0 up to 24 h",
        default: Value("\"30s\""),
        doc: "After SIGTERM: how long transactions may take to end before they are cut off. A second signal cuts them off at once.",
        reason: "What process managers allow before they kill.",
        reloadable: true,
    },
    Field {
        key: "state_file",
        form: Form::Text,
        takes: "an absolute path, or `\"none\"`",
        default: Value("\"none\""),
        doc: "Where what was learned of request types is kept across restarts: written every minute and at the end, read at the start. It holds shapes of statements, never a literal. A file that can't be used is put aside with a warning.",
        reason: "Where a service may write is the operator's to say (with systemd: `StateDirectory=gatekeeper` and a file in `/var/lib/gatekeeper`). Without it a restarted gate learns anew, one request of each type at a time.",
        reloadable: false,
    },
    Field {
        key: "trace_file",
        form: Form::Text,
        takes: "an absolute path, or `\"none\"`",
        default: Value("\"none\""),
        doc: "Where each request is written down, for `gatekeeper replay`: when it came, of which type, how long it waited and ran. It holds shapes of statements, never a literal. A file that is there at the start goes to `FILE.1`.",
        reason: "Some 35 bytes a request are for those who want to look at them.",
        reloadable: false,
    },
    Field {
        key: "trace_max",
        form: Form::Any,
        takes: "1 to 1000000 megabytes",
        default: Value("256"),
        doc: "The longest `trace_file`.",
        reason: "Seven million requests: hours of most services, and no disk is full.",
        reloadable: false,
    },
    Field {
        key: "trace_full",
        form: Form::Any,
        takes: "`\"stop\"` or `\"rotate\"`",
        default: Value("\"stop\""),
        doc: "What happens when the `trace_file` is as long as it may be: nothing more is written, or it goes to `FILE.1`, in place of the one before it, and another one begins.",
        reason: "Who records for an experiment wants its beginning. Rotate to have the latest at hand, at twice the length.",
        reloadable: false,
    },
    Field {
        key: "admin_users",
        form: Form::Text,
        takes: "a list of user names, as `[\"ann\", \"bob\"]` or `\"ann, bob\"`",
        default: Value("[]"),
        doc: "Who may use the console, the virtual database `gatekeeper` (also called `pgbouncer`): look at everything, pause, resume, end sessions, reload, shut down. There is no console unless somebody is named here or in `stats_users`.",
        reason: "A console that nobody asked for is a door that nobody watches.",
        reloadable: true,
    },
    Field {
        key: "stats_users",
        form: Form::Text,
        takes: "a list of user names",
        default: Value("[]"),
        doc: "Who may use the console to look, and nothing else: for dashboards and exporters.",
        reason: "An exporter needs no right to pause.",
        reloadable: true,
    },
    Field {
        key: "admin_database",
        form: Form::Text,
        takes: "a name",
        default: Value("\"postgres\""),
        doc: "The server's database to which the login of a console user is relayed, to see whether the server knows him. Nothing is asked there. A user who comes by a Unix socket from a process of the gatekeeper's own user (or root) isn't asked for a password.",
        reason: "Every server has it.",
        reloadable: true,
    },
    Field {
        key: "types_max",
        form: Form::Any,
        takes: "1 to 10000",
        default: Value("1000"),
        doc: "The most request types known at once; the least recently used one is counted as `other`. Each takes about 10 KB.",
        reason: "Applications have some hundred statements; beyond that somebody generates them.",
        reloadable: false,
    },
    Field {
        key: "suspend_after",
        form: Form::Any,
        takes: "a duration from 0 up to 24 h",
        default: Value("\"1s\""),
        doc: "A transaction that is idle for longer gives its work back (not its connection) until its next statement.",
        reason: "Application code between two statements takes milliseconds; after a second somebody is thinking.",
        reloadable: true,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_toml_value() {
        for field in ADMIN.iter().chain(LOG).chain(GATE) {
            let is_value = matches!(field.default, Value(_));
            assert_eq!(field.default_value().is_some(), is_value, "{}", field.key);
        }
    }

    #[test]
    fn every_key_is_documented_with_a_reason() {
        for field in ADMIN.iter().chain(LOG).chain(GATE) {
            for text in [field.doc, field.reason] {
                assert!(text.ends_with('.') && text.len() > 15, "{}: {text:?}", field.key);
            }
        }
    }
}
