//! pgpool-II before a real PostgreSQL, as experiments have it.

// Helpers of tests may panic too.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use bench::load::{Connecting, Crowd, Group, Mix, Outcome, RequestType, Target, Unit};
use testbed::pgpool::PgPool;
use testbed::postgres::{Authentication, PrivateServer, PrivateServerOptions};

/// Six clients share two processes and their server connections, a request each at a time.
#[tokio::test(flavor = "multi_thread")]
async fn more_clients_than_processes_are_served_in_turn() {
    let options = PrivateServerOptions {
        authentication: Authentication::Trust,
        // To one that is called `postgres` it keeps no connections.
        database: "shop",
        ..PrivateServerOptions::default()
    };
    let server = PrivateServer::start(&options).unwrap();
    let pgpool = PgPool::start(&server, 2, 100).unwrap();
    let statements = ["SELECT pg_backend_pid()", "SELECT 1"];
    let request = RequestType::new("look", 1.0, Unit::Transaction, &[], &statements).unwrap();
    let mix = Arc::new(Mix::new(vec![request]).unwrap());
    let crowd = Crowd {
        groups: vec![Group {
            target: Target::parse(&server.dsn_through(pgpool.port())).unwrap(),
            mix,
            clients: 6,
            think: Duration::ZERO,
        }],
        connecting: Connecting::ForEach,
        timeout: Duration::from_secs(20),
        warm_up: Duration::ZERO,
        window: Duration::from_millis(300),
        drain: Duration::from_secs(20),
        seed: 1,
    };
    let outcome = crowd.run(|_| ()).await.unwrap();
    let records = &outcome.groups[0].records;
    assert!(records.len() >= 6, "{}", records.len());
    let lost = records.iter().filter(|record| record.outcome != Outcome::Completed).count();
    assert_eq!((lost, outcome.first_failure), (0, None));
    // Its two server connections are kept for the next client.
    let kept = server
        .psql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
        .unwrap();
    assert!(["1", "2"].contains(&kept.trim()), "{kept}");
}
