//! The world that a right configuration describes.

#![expect(clippy::panic, reason = "a helper of tests fails like a test")]

use std::collections::BTreeMap;
use std::time::Duration;

use admission::{
    AfterStall, Capacity, Controller, Cost, Goal, Order, Rejection, Targets, Tuning, Work, YakshaSettings,
};
use config::{
    ADMIN, Address, Auth, AuthMethod, AuthQuery, COMMON, ChannelBinding, Connections, Field, FieldDefault,
    Gate, LOG, LongLimit, Mode, OnDisconnect, Origin, POSTGRES, PROCESS, Pooling, Postgres, Service,
    SocketMode, TlsMode, Trace, TraceFull, UpstreamTlsMode, World, effective, parse,
};

const MINIMAL: &str = "[[gate]]\nupstream = \"db:5432\"\n";

/// Every key, none at its default.
const FULL: &str = r#"
[admin]
listen = "none"
names = ["gatekeeper.internal"]
socket = "/run/gatekeeper/admin.sock"
socket_mode = "0660"
metrics_types_max = 50
token_file = "/etc/gatekeeper/token"

[log]
format = "json"
level = "debug"

[process]
memory_max = 512

[[gate]]
name = "shop"
protocol = "postgres"
listen = "/run/gatekeeper"
upstream = "unix:/run/postgresql/.s.PGSQL.5433"
connections = 9
capacity = "20s"
contention = "auto"
long_limit = 2
order = "shortest-first"
aging = 2.5
aging_floor = "250ms"
cost = "ewma"
cost_window = 19
queue_max = 0
queue_timeout = "1m 30s"
after_stall = "in-order"
mode = "observe"
pooling = "session"
pinned_max = 9
max_clients = 7
login_timeout = "1s"
message_timeout = "3m"
idle_transaction_timeout = "4m"
wait_notice = "6s"
user_clients_max = 7
database_clients_max = 8
connect_timeout = "2s"
logins_max = 3
keepalive = "4s"
tls_mode = "verify-full"
tls_cert = "/etc/gate.pem"
tls_key = "/etc/gate.key"
tls_client_ca = "/etc/people.pem"
dns_ttl = "0s"
allow_trust_relay = true
auth = "md5"
users_file = "/etc/gatekeeper/users.txt"
auth_user = "lookup"
auth_database = "shop"
auth_query = "SELECT * FROM lookup($1)"
login_failures_max = 9
allow_cleartext = true
upstream_channel_binding = "require"
on_disconnect = "cancel"
lower_long_reads = true
drain_timeout = "0s"
types_max = 5
goal_tick = "3s"
suspend_after = "0s"
rejection = "yaksha"
target = "150ms"
yaksha_arrivals = 823.5
yaksha_tuning = "static"
yaksha_interval = "2s"
yaksha_smoothing = "3s"
yaksha_averaging = "4s"
state_file = "/var/lib/gatekeeper/shop.json"
trace_file = "/var/lib/gatekeeper/shop.trace"
trace_max = 9
trace_full = "rotate"
admin_users = ["ann", "bob"]
stats_users = "exporter, prober"
admin_database = "shop"

[[gate.class]]
name = "batch"
user = "batch"

[[gate]]
name = "reports"
listen = "[::1]:6500"
upstream = "10.0.0.2:5432"
auth = "scram-sha-256"
auth_user = "lookup"
login_failures_max = "none"
upstream_tls_mode = "verify-ca"
upstream_tls_ca = "/etc/db.pem"
upstream_tls_cert = "/etc/client.pem"
upstream_tls_key = "/etc/client.key"
long_limit = "none"
order = "fifo"
rejection = "none"
on_disconnect = "finish"

[[gate]]
name = "third"
listen = "localhost:0"
upstream = "10.0.0.3:5432"
long_limit = 0
aging = "none"
rejection = "deadline"
cost = "steady"

[[gate]]
name = "fourth"
listen = "localhost:1"
upstream = "10.0.0.4:5432"
target = "200ms"
target_p95 = "500ms"
type = [{ name = "shop: /cart", target = "90ms" }]
cost = "fixed"
cost_window = 8
"#;

fn world(text: &str) -> World {
    parse(Origin::File("g.toml".into()), text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn postgres(gate: &Gate) -> &Postgres {
    match &gate.service {
        Service::Postgres(postgres) => postgres,
        Service::Mysql(_) | Service::Http(_) => panic!("another gate"),
    }
}

#[test]
fn only_the_upstream_is_required() {
    let world = world(MINIMAL);
    let gate = &world.gates[0];
    let of_postgres = postgres(gate);
    assert_eq!(world.admin.listen, Some(Address::Inet { host: "127.0.0.1".into(), port: 6433 }));
    assert_eq!((world.memory_max, of_postgres.message_timeout), (None, Duration::from_secs(300)));
    assert_eq!((gate.name.as_str(), gate.listen.to_string()), ("postgres", "127.0.0.1:6432".into()));
    assert_eq!((gate.mode, of_postgres.pooling), (Mode::Enforce, Pooling::Transaction));
    let policy = &gate.policy;
    assert_eq!((policy.connections, policy.pinned_max), (20, 10));
    assert_eq!(policy.capacity, Capacity::Found(Controller::Auto));
    assert_eq!((gate.long_limit, policy.long_limit), (LongLimit::Auto, Some(admission::LongLimit::FOUND)));
    let floor = Work::from(Duration::from_secs(3));
    assert_eq!(policy.order, Order::ShortestFirst { aging: Some(3.0), floor });
    assert_eq!(policy.cost, Cost::DEFAULT);
    assert_eq!((policy.queue_max, policy.queue_timeout), (100_000, Duration::from_secs(120)));
    assert_eq!(policy.after_stall, AfterStall::NewcomersFirst);
    assert_eq!((policy.types_max, policy.suspend_after), (1000, Duration::from_secs(1)));
    assert_eq!((gate.max_clients, of_postgres.logins_max), (10_000, 16));
    assert!(!of_postgres.allow_trust_relay);
}

#[test]
fn every_key_is_heard() {
    let world = world(FULL);
    let gate = &world.gates[0];
    let of_postgres = postgres(gate);
    assert_eq!(world.admin.listen, None);
    assert_eq!(world.admin.socket.as_deref(), Some("/run/gatekeeper/admin.sock".as_ref()));
    assert_eq!((world.admin.socket_mode, world.admin.metrics_types_max), (SocketMode::Group, 50));
    let file = Some("/var/lib/gatekeeper/shop.trace".into());
    assert_eq!(gate.trace, Trace { file, megabytes_max: 9, full: TraceFull::Rotate });
    assert_eq!(world.admin.token_file.as_deref(), Some("/etc/gatekeeper/token".as_ref()));
    assert_eq!(gate.listen, Address::Unix("/run/gatekeeper/.s.PGSQL.6432".into()));
    assert_eq!(of_postgres.upstream, Address::Unix("/run/postgresql/.s.PGSQL.5433".into()));
    let identity = gate.tls.identities.first().expect("an identity");
    assert_eq!(
        (&*identity.certificate, &*identity.key),
        ("/etc/gate.pem".as_ref(), "/etc/gate.key".as_ref())
    );
    assert_eq!(gate.tls.client_ca.as_deref(), Some("/etc/people.pem".as_ref()));
    assert_eq!((gate.tls.mode, gate.dns_ttl), (TlsMode::VerifyFull, Duration::ZERO));
    let upstream_tls = &world.gates[1].upstream_tls;
    assert_eq!(upstream_tls.mode, UpstreamTlsMode::VerifyCa);
    assert_eq!(upstream_tls.ca.as_deref(), Some("/etc/db.pem".as_ref()));
    let identity = upstream_tls.identity.as_ref().expect("an identity");
    assert_eq!(
        (&*identity.certificate, &*identity.key),
        ("/etc/client.pem".as_ref(), "/etc/client.key".as_ref())
    );
    let policy = &gate.policy;
    assert_eq!((policy.connections, policy.pinned_max), (9, 9));
    assert_eq!(policy.capacity, Capacity::Fixed(Work::from(Duration::from_secs(20))));
    assert_eq!(
        (gate.long_limit, policy.long_limit),
        (LongLimit::Fixed(2), Some(admission::LongLimit::Fixed(2)))
    );
    let floor = Work::from(Duration::from_millis(250));
    assert_eq!(policy.order, Order::ShortestFirst { aging: Some(2.5), floor });
    assert_eq!(policy.cost, Cost::Ewma { weight: 0.1 });
    assert_eq!(world.gates[2].policy.cost, Cost::Steady);
    assert_eq!(world.gates[3].policy.cost, Cost::Fixed { window: 8 });
    assert_eq!((policy.queue_max, policy.queue_timeout), (0, Duration::from_secs(90)));
    assert_eq!(policy.after_stall, AfterStall::InOrder);
    assert_eq!((policy.types_max, policy.suspend_after), (5, Duration::ZERO));
    assert_eq!((gate.mode, of_postgres.pooling), (Mode::Observe, Pooling::Session));
    assert_eq!((gate.max_clients, of_postgres.logins_max), (7, 3));
    assert_eq!(
        (of_postgres.login_timeout, gate.connect_timeout),
        (Duration::from_secs(1), Duration::from_secs(2))
    );
    assert_eq!((world.memory_max, of_postgres.message_timeout), (Some(512), Duration::from_secs(180)));
    assert_eq!(of_postgres.idle_transaction_timeout, Some(Duration::from_secs(240)));
    assert_eq!(of_postgres.wait_notice, Some(Duration::from_secs(6)));
    assert_eq!((of_postgres.user_clients_max, of_postgres.database_clients_max), (Some(7), Some(8)));
    assert_eq!((gate.keepalive, gate.drain_timeout), (Duration::from_secs(4), Duration::ZERO));
    assert!(of_postgres.allow_trust_relay);
    let yaksha = YakshaSettings {
        target: Duration::from_millis(150),
        arrivals: 823.5,
        tuning: Tuning::Static,
        interval: Duration::from_secs(2),
        smoothing: Duration::from_secs(3),
        averaging: Duration::from_secs(4),
    };
    assert_eq!(policy.rejection, Rejection::Yaksha(yaksha));
    assert_eq!(world.gates[1].policy.rejection, Rejection::Nobody);
    assert_eq!(world.gates[2].policy.rejection, Rejection::Deadline);
    let all = Goal { mean: Some(Duration::from_millis(200)), p95: Some(Duration::from_millis(500)) };
    let targets = Targets { all, types: BTreeMap::new() };
    assert_eq!(world.gates[3].policy.rejection, Rejection::Target(targets));
    let query = |database: &str, sql: Option<&str>| AuthQuery {
        user: "lookup".to_owned(),
        database: database.to_owned(),
        sql: sql.map(str::to_owned),
    };
    let auth = Auth {
        method: AuthMethod::Md5,
        users_file: Some("/etc/gatekeeper/users.txt".into()),
        query: Some(query("shop", Some("SELECT * FROM lookup($1)"))),
        failures_max: Some(9),
        allow_cleartext: true,
        channel_binding: ChannelBinding::Require,
    };
    assert_eq!(of_postgres.auth, auth);
    let second = &postgres(&world.gates[1]).auth;
    let third = &postgres(&world.gates[2]).auth;
    assert_eq!((second.method, &second.query), (AuthMethod::Scram, &Some(query("postgres", None))));
    assert_eq!((second.failures_max, third.failures_max), (None, Some(100)));
    assert_eq!(third.method, AuthMethod::Relay);
    assert_eq!(second.channel_binding, ChannelBinding::Prefer);
    assert_eq!(of_postgres.on_disconnect, OnDisconnect::Cancel);
    assert_eq!((world.gates[1].policy.order, world.gates[1].policy.long_limit), (Order::Fifo, None));
    assert_eq!(world.gates[2].long_limit, LongLimit::NoLane);
    assert!(matches!(world.gates[2].policy.order, Order::ShortestFirst { aging: None, .. }));
}

#[test]
fn the_full_file_names_every_key() {
    for field in COMMON.iter().chain(POSTGRES) {
        let written =
            if field.key == "class" { "\n[[gate.class]]".to_owned() } else { format!("\n{} = ", field.key) };
        assert!(FULL.contains(&written), "{}", field.key);
    }
}

#[test]
fn writing_out_every_documented_default_changes_nothing() {
    let written = |fields: &[Field]| -> String {
        let line = |field: &Field| match field.default {
            FieldDefault::Value(value) | FieldDefault::Each(value, ..) => {
                format!("{} = {value}\n", field.key)
            }
            FieldDefault::Derived(_) | FieldDefault::Required => String::new(),
        };
        fields.iter().map(line).collect()
    };
    let gate = written(COMMON) + &written(POSTGRES);
    let text = format!(
        "[admin]\n{}[log]\n{}[process]\n{}{MINIMAL}{gate}",
        written(ADMIN),
        written(LOG),
        written(PROCESS)
    );
    assert_eq!(world(&text), world(MINIMAL));
}

#[test]
fn the_capacity_is_an_amount_or_found_or_none() {
    let capacity = |text: &str| {
        let world = world(&format!("{MINIMAL}\ncapacity = \"{text}\"\n"));
        let printed = effective(&world);
        assert!(printed.contains(&format!("capacity = \"{text}\"\n")), "{printed}");
        world.gates[0].policy.capacity
    };
    assert_eq!(capacity("none"), Capacity::Unlimited);
    assert_eq!(capacity("1s 500ms"), Capacity::Fixed(Work::from(Duration::from_millis(1500))));
    assert_eq!(capacity("auto"), Capacity::Found(Controller::Auto));
    assert_eq!(capacity("parabola"), Capacity::Found(Controller::Parabola));
}

#[test]
fn a_capacity_is_found_whatever_the_protocol_and_the_connections() {
    let http = "[[gate]]\nprotocol = \"http\"\nupstream = \"app:80\"\n";
    for text in [MINIMAL.to_owned(), format!("{MINIMAL}\nconnections = 1000\n"), http.to_owned()] {
        assert_eq!(world(&text).gates[0].policy.capacity, Capacity::Found(Controller::Auto), "{text}");
    }
}

#[test]
fn what_is_printed_as_effective_means_the_same_world() {
    for text in [MINIMAL, FULL] {
        let printed = effective(&world(text));
        assert_eq!(world(&printed), world(text), "{printed}");
    }
}

#[test]
fn the_effective_configuration_tells_what_was_derived() {
    let printed = effective(&world(MINIMAL));
    for expected in [
        "connections = \"auto\"\n",
        "capacity = \"auto\"\n",
        "# the unit of work and of capacity: the mean upstream time of a type's last 32 executions\n",
        "long_limit = \"auto\"\n",
        "# stay free. 20 where the server doesn't tell\n",
        "queue_timeout = \"2m\"\n",
        "after_stall = \"newcomers-first\"\n",
    ] {
        assert!(printed.contains(expected), "{expected:?} in\n{printed}");
    }
}

#[test]
fn a_published_method_stands_apart_in_what_is_printed() {
    let note = "# the laboratory: a published method, to compare with";
    let notes = |line: &str| {
        let text = format!("[[gate]]\nupstream = \"db:5432\"\n{line}");
        effective(&world(&text)).matches(note).count()
    };
    for line in [
        "capacity = \"incremental-steps\"",
        "capacity = \"parabola\"",
        "rejection = \"yaksha\"\ntarget = \"1s\"",
    ] {
        assert_eq!((notes(line), notes("")), (1, 0), "{line}");
    }
}

#[test]
fn the_gate_takes_every_policy_that_is_configured() {
    for gate in world(FULL).gates.iter().chain(&world(MINIMAL).gates) {
        assert_eq!(gate.policy.check(), Ok(()), "{}", gate.name);
    }
}

#[test]
fn half_of_one_connection_is_one() {
    assert_eq!(world(&format!("{MINIMAL}connections = 1\n")).gates[0].policy.pinned_max, 1);
}

#[test]
fn the_number_of_connections_is_found_where_it_is_asked_for() {
    let found = |lines: &str| {
        let world = world(&format!("{MINIMAL}connections = \"auto\"\n{lines}"));
        let printed = effective(&world);
        assert_eq!(parse(Origin::CommandLine, &printed).unwrap(), world, "{printed}");
        (world.gates[0].connections, world.gates[0].policy.pinned_max, world.gates[0].policy.capacity)
    };
    let capacity = Capacity::Found(Controller::Auto);
    assert_eq!(found(""), (Connections::Found { pinned_max: None }, 10, capacity));
    assert_eq!(found("pinned_max = 30"), (Connections::Found { pinned_max: Some(30) }, 30, capacity));
}

#[test]
fn flags_make_the_same_world_as_a_file() {
    let flags =
        [("upstream", "db:5432".to_owned()), ("connections", "9".to_owned()), ("aging", "none".to_owned())];
    let from_flags = config::from_flags(&flags, Some("127.0.0.1:0")).unwrap();
    let from_file = world(
        "[admin]\nlisten = \"127.0.0.1:0\"\n[[gate]]\nupstream = \"db:5432\"\nconnections = 9\naging = \"none\"\n",
    );
    assert_eq!(from_flags, from_file);
}

#[test]
fn addresses_know_whether_others_can_reach_them() {
    let listen =
        |address: &str| world(&format!("{MINIMAL}listen = \"{address}\"\n")).gates[0].listen.is_local();
    assert!(listen("127.0.0.1:1") && listen("[::1]:1") && listen("localhost:1") && listen("/run"));
    assert!(listen("LocalHost:1") && listen("[::ffff:127.0.0.1]:1"));
    assert!(!listen("0.0.0.0:1") && !listen("10.0.0.1:1") && !listen("db.example:1"));
}

#[test]
fn a_gate_is_amended_with_some_keys_and_keeps_the_others() {
    let running = world(
        "[[gate]]\nname = \"shop\"\nupstream = \"db:5432\"\nconnections = 8\npinned_max = 8\nqueue_max = 7",
    );
    let flags = [("connections", "4".to_owned()), ("order", "fifo".to_owned())];
    let gate = config::amended(&running, &flags).unwrap().gates.remove(0);
    let policy = &gate.policy;
    assert_eq!((policy.connections, policy.pinned_max, policy.queue_max), (4, 2, 7));
    assert_eq!((policy.order, gate.name.as_str()), (Order::Fifo, "shop"));
    let errors = config::amended(&running, &[("order", "lifo".to_owned())]).unwrap_err().to_string();
    assert!(errors.starts_with("--order \"lifo\": isn't known"), "{errors}");
}
