//! The load generator against a real PostgreSQL.

// Helpers of tests may panic too.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use bench::load::{
    Connecting, ConnectionPool, Crowd, CrowdOutcome, Draw, Group, Mix, OpenOutcome, OpenRun, Outcome,
    RequestType, Schedule, Target, Unit,
};
use bench::shop;
use testbed::pgpool::PgPool;
use testbed::postgres::{Authentication, PrivateServer, PrivateServerOptions};

fn server() -> PrivateServer {
    PrivateServer::start(&PrivateServerOptions::default()).unwrap()
}

fn statement(text: &str) -> Arc<Mix> {
    let request_type = RequestType::new("statement", 1.0, Unit::Statements, &[], &[text]).unwrap();
    Arc::new(Mix::new(vec![request_type]).unwrap())
}

async fn pool(server: &PrivateServer, size: usize) -> Arc<ConnectionPool> {
    ConnectionPool::open(Target::parse(&server.dsn()).unwrap(), size).await.unwrap()
}

/// Two hundred arrivals a second for half a second.
async fn run(pool: &Arc<ConnectionPool>, mix: &Arc<Mix>, timeout: Duration) -> OpenOutcome {
    let schedule = Arc::new(Schedule::poisson(mix, 200.0, Duration::from_millis(500), 1).unwrap());
    let run = OpenRun { mix: Arc::clone(mix), schedule, timeout };
    let outcome = run.run(pool).await.unwrap();
    assert_eq!(outcome.records.len(), run.schedule.arrivals().len());
    assert!(pool.is_at_rest());
    outcome
}

#[tokio::test]
async fn every_arrival_is_answered_once_although_connections_are_few() {
    let server = server();
    let draws = [Draw::Uniform { low: 1, high: 9 }];
    let types = vec![
        RequestType::new("read", 1.0, Unit::Statements, &draws, &["SELECT {0}"]).unwrap(),
        RequestType::new("write", 1.0, Unit::Transaction, &draws, &["SELECT {0}", "SELECT 2"]).unwrap(),
    ];
    let mix = Arc::new(Mix::new(types).unwrap());
    let outcome = run(&pool(&server, 2).await, &mix, Duration::from_secs(60)).await;
    assert!(outcome.records.iter().all(|record| record.outcome == Outcome::Completed));
}

#[tokio::test]
async fn a_request_without_an_answer_is_given_up_and_the_server_is_left_idle() {
    let server = server();
    let pool = pool(&server, 3).await;
    let timeout = Duration::from_millis(200);
    let outcome = run(&pool, &statement("SELECT pg_sleep(600)"), timeout).await;
    assert!(outcome.records.iter().all(|record| record.outcome == Outcome::TimedOut));
    assert!(outcome.records.iter().all(|record| record.response == timeout));
    let busy = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%600%' AND state = 'active'
                AND pid <> pg_backend_pid()";
    assert_eq!(server.psql(busy).unwrap(), "0");
    // Canceled, not torn down: the connections are the same ones.
    assert_eq!(pool.reopened(), 0);
}

#[tokio::test]
async fn a_failed_transaction_is_rolled_back_and_its_connection_used_again() {
    let server = server();
    let failing = RequestType::new("bad", 1.0, Unit::Transaction, &[], &["SELECT 1/0"]).unwrap();
    let pool = pool(&server, 1).await;
    let outcome = run(&pool, &Arc::new(Mix::new(vec![failing]).unwrap()), Duration::from_secs(60)).await;
    assert!(outcome.records.iter().all(|record| record.outcome == Outcome::Failed));
    assert!(outcome.first_failure.unwrap().contains("division by zero"));
    let outcome = run(&pool, &statement("SELECT 1"), Duration::from_secs(60)).await;
    assert!(outcome.records.iter().all(|record| record.outcome == Outcome::Completed));
}

#[tokio::test]
async fn a_lost_connection_is_opened_again() {
    let server = server();
    let pool = pool(&server, 2).await;
    let ending = "SELECT pg_terminate_backend(pg_backend_pid())";
    let outcome = run(&pool, &statement(ending), Duration::from_secs(60)).await;
    assert!(outcome.records.iter().all(|record| record.outcome == Outcome::Failed));
    assert_eq!((pool.missing(), pool.reopened() > 0), (0, true));
}

#[tokio::test]
async fn a_refusal_for_want_of_room_is_told_from_a_failure() {
    let server = server();
    let refusing = "DO $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53300'; END $$";
    let outcome = run(&pool(&server, 2).await, &statement(refusing), Duration::from_secs(60)).await;
    assert!(outcome.records.iter().all(|record| record.outcome == Outcome::Rejected));
}

#[tokio::test]
async fn the_shop_takes_orders_and_is_restored_to_what_it_was() {
    let server = server();
    let target = Target::parse(&server.dsn()).unwrap();
    let admin = target.connect().await.unwrap();
    shop::create(&admin).await.unwrap();
    let mix = Arc::new(shop::mix(testbed::database::Database::Postgres, 1_000).unwrap());
    let outcome = run(&pool(&server, 4).await, &mix, Duration::from_secs(60)).await;
    assert!(outcome.records.iter().all(|record| record.outcome == Outcome::Completed));
    let orders = outcome.records.iter().filter(|record| record.request_type == shop::ORDER).count();
    assert_eq!(server.psql("SELECT count(*) FROM orders").unwrap(), orders.to_string());
    let sold = "SELECT sum(1000000000 - stock) FROM items";
    assert_eq!(server.psql(sold).unwrap(), (3 * orders).to_string());
    shop::restore(&admin).await.unwrap();
    assert_eq!(server.psql("SELECT count(*) FROM orders").unwrap(), "0");
    assert_eq!(server.psql(sold).unwrap(), "0");
}

/// Three clients for a third of a second, as told.
async fn crowd(
    server: &PrivateServer,
    request: RequestType,
    change: impl FnOnce(&mut Crowd),
) -> CrowdOutcome {
    let mix = Arc::new(Mix::new(vec![request]).unwrap());
    let mut crowd = Crowd {
        groups: vec![Group {
            target: Target::parse(&server.dsn()).unwrap(),
            mix,
            clients: 3,
            think: Duration::ZERO,
        }],
        connecting: Connecting::Once,
        timeout: Duration::from_secs(60),
        warm_up: Duration::ZERO,
        window: Duration::from_millis(300),
        drain: Duration::from_secs(60),
        seed: 1,
    };
    change(&mut crowd);
    let mut begun = false;
    let outcome = crowd.run(|_| begun = true).await.unwrap();
    assert!(begun && outcome.groups.len() == crowd.groups.len());
    outcome
}

fn request(text: &str) -> RequestType {
    RequestType::new("request", 1.0, Unit::Transaction, &[], &[text]).unwrap()
}

#[tokio::test]
async fn a_crowd_thinks_and_has_groups_of_its_own() {
    let server = server();
    let outcome = crowd(&server, request("SELECT 1"), |crowd| {
        // A client that thinks for hours asks for nothing in between, but for once in a thousand years.
        let thinking = Group { clients: 2, think: Duration::from_secs(360_000), ..crowd.groups[0].clone() };
        crowd.groups.push(thinking);
    })
    .await;
    assert!(outcome.groups[0].records.len() > 3);
    assert!(outcome.groups[0].records.iter().all(|record| record.outcome == Outcome::Completed));
    assert_eq!(outcome.groups[1].records.len(), 0);
}

#[tokio::test]
async fn what_an_application_would_try_again_is_part_of_one_request() {
    let server = server();
    server.psql("CREATE SEQUENCE attempts").unwrap();
    // Every second attempt fails as a serialization does; a sequence counts also what is rolled back.
    let failing = "DO $$ BEGIN IF nextval('attempts') % 2 = 1 THEN \
                   RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END IF; END $$";
    let retried = |states: &[String]| request(failing).retrying(states);
    let outcome = crowd(&server, retried(&["40001".to_owned()]), |crowd| crowd.groups[0].clients = 1).await;
    let records = &outcome.groups[0].records;
    assert!(records.iter().all(|record| (record.outcome, record.retries) == (Outcome::Completed, 1)));
    let outcome = crowd(&server, retried(&[]), |crowd| crowd.groups[0].clients = 1).await;
    assert!(outcome.first_failure.unwrap().contains("again"));
}

#[tokio::test]
async fn who_waits_too_long_gives_up_and_the_connection_is_used_again() {
    let server = server();
    let outcome = crowd(&server, request("SELECT pg_sleep(600)"), |crowd| {
        crowd.timeout = Duration::from_millis(100);
        crowd.drain = Duration::ZERO;
    })
    .await;
    let records = &outcome.groups[0].records;
    assert!(records.iter().all(|record| record.outcome == Outcome::TimedOut), "{records:?}");
    assert!(records.iter().all(|record| record.response == Duration::from_millis(100)));
    assert!(outcome.first_failure.is_none());
}

#[tokio::test]
async fn a_connection_for_each_request_is_a_session_for_each() {
    let server = server();
    server.psql("CREATE TABLE seen (pid int)").unwrap();
    let note = request("INSERT INTO seen VALUES (pg_backend_pid())");
    let outcome = crowd(&server, note, |crowd| crowd.connecting = Connecting::ForEach).await;
    let requests = outcome.groups[0].records.len();
    assert_eq!(server.psql("SELECT count(DISTINCT pid) FROM seen").unwrap(), requests.to_string());
}

#[tokio::test]
async fn waiting_in_the_client_is_told_and_a_refusal_gives_its_connection_back_at_once() {
    let server = server();
    let pool = pool(&server, 1).await;
    // A hundred requests, one after the other: the last ones wait for the only connection for seconds.
    let outcome = run(&pool, &statement("SELECT pg_sleep(0.05)"), Duration::from_secs(60)).await;
    assert_eq!(outcome.waits.len(), outcome.records.len());
    let longest = outcome.waits.iter().max().unwrap();
    assert!(*longest > Duration::from_millis(50 * 20), "{longest:?}");
    // A refusal, as a gate says it, within a transaction that is rolled back: nobody keeps the connection.
    let refusing = "DO $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '53300'; END $$";
    let refused = RequestType::new("refused", 1.0, Unit::Transaction, &[], &[refusing]).unwrap();
    let retrying = refused.retrying(&["40001".to_owned()]);
    let outcome = run(&pool, &Arc::new(Mix::new(vec![retrying]).unwrap()), Duration::from_secs(60)).await;
    assert!(outcome.records.iter().all(|record| (record.outcome, record.retries) == (Outcome::Rejected, 0)));
}

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
