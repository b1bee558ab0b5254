//! The load generator against a real MariaDB.

// Helpers of tests may panic too.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use bench::load::{
    Client, Connecting, ConnectionPool, Crowd, Group, Mix, OpenOutcome, OpenRun, Outcome, RequestType,
    Schedule, Target, Unit,
};
use bench::shop;
use testbed::database::{Database, DatabaseServer};
use testbed::postgres::PrivateServerOptions;

const LONG: Duration = Duration::from_secs(60);

fn server() -> (DatabaseServer, Target) {
    let server = DatabaseServer::start(Database::Mariadb, &PrivateServerOptions::default()).unwrap();
    let target = Target::parse(&server.url()).unwrap();
    (server, target)
}

fn mix(unit: Unit, text: &str) -> Arc<Mix> {
    let request_type = RequestType::new("request", 1.0, unit, &[], &[text]).unwrap();
    Arc::new(Mix::new(vec![request_type]).unwrap())
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

fn all(outcome: &OpenOutcome, how: Outcome) -> bool {
    outcome.records.iter().all(|record| record.outcome == how)
}

async fn only(admin: &Client, sql: &str) -> String {
    admin.column(sql).await.unwrap().concat()
}

#[tokio::test]
async fn what_is_given_up_is_killed_and_its_connection_used_again() {
    let (_server, target) = server();
    let admin = target.connect().await.unwrap();
    let pool = ConnectionPool::open(target.clone(), 3).await.unwrap();
    let sleeping = mix(Unit::Transaction, "SELECT sleep(600)");
    let outcome = run(&pool, &sleeping, Duration::from_millis(200)).await;
    assert!(all(&outcome, Outcome::TimedOut));
    let left = "SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%600%' AND id <> connection_id()";
    assert_eq!((only(&admin, left).await.as_str(), pool.reopened()), ("0", 0));
    let crowd = Crowd {
        groups: vec![Group { target, mix: sleeping, clients: 3, think: Duration::ZERO }],
        connecting: Connecting::Once,
        timeout: Duration::from_millis(100),
        warm_up: Duration::ZERO,
        window: Duration::from_millis(300),
        drain: Duration::ZERO,
        seed: 1,
    };
    let outcome = crowd.run(|_| ()).await.unwrap();
    assert!(outcome.groups[0].records.iter().all(|record| record.outcome == Outcome::TimedOut));
}

#[tokio::test]
async fn errors_refusals_and_lost_connections_are_told_apart() {
    let (_server, target) = server();
    let pool = ConnectionPool::open(target, 2).await.unwrap();
    let signal = |code: u16, text: &str| {
        format!("SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = '{text}'")
    };
    let outcome =
        run(&pool, &mix(Unit::Transaction, &signal(1205, "Lock wait timeout exceeded")), LONG).await;
    assert!(all(&outcome, Outcome::Failed) && outcome.first_failure.unwrap().contains("Lock wait"));
    let refusal = signal(1205, "gatekeeper \"mysql\": overloaded");
    let outcome = run(&pool, &mix(Unit::Transaction, &refusal), LONG).await;
    assert!(all(&outcome, Outcome::Rejected) && pool.reopened() == 0);
    let outcome = run(&pool, &mix(Unit::Statements, "KILL CONNECTION_ID()"), LONG).await;
    assert!(all(&outcome, Outcome::Failed) && pool.reopened() > 0);
    assert_eq!(pool.missing(), 0);
    // A connection that was killed behind its answer is found by the next request.
    let select = mix(Unit::Statements, "SELECT 1");
    run(&pool, &select, LONG).await;
    assert!(all(&run(&pool, &select, LONG).await, Outcome::Completed));
}

#[tokio::test]
async fn the_shop_takes_orders_and_is_restored_to_what_it_was() {
    let (server, target) = server();
    assert!(server.version().unwrap().starts_with("1"), "{:?}", server.version());
    let admin = target.connect().await.unwrap();
    shop::create(&admin).await.unwrap();
    assert!(shop::report_rows(&admin).await.unwrap() > 100);
    let mix = Arc::new(shop::mix(Database::Mariadb, 1_000).unwrap());
    let outcome = run(&ConnectionPool::open(target, 4).await.unwrap(), &mix, LONG).await;
    assert!(all(&outcome, Outcome::Completed), "{:?}", outcome.first_failure);
    let orders = outcome.records.iter().filter(|record| record.request_type == shop::ORDER).count();
    let (count, sold) = ("SELECT count(*) FROM orders", "SELECT sum(1000000000 - stock) FROM items");
    assert_eq!(only(&admin, count).await, orders.to_string());
    assert_eq!(only(&admin, sold).await, (3 * orders).to_string());
    shop::restore(&admin).await.unwrap();
    assert_eq!((only(&admin, count).await, only(&admin, sold).await), ("0".to_owned(), "0".to_owned()));
}
