//! Clients that come and go for every transaction, in front of a real PostgreSQL: logins by relay, the
//! bounded pool and the session loop together.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::time::Duration;

use admission::{Cost, LongLimit, Order, Policy, Work};
use proxy::Address;
use proxy::gate::Driver;
use proxy::postgres::{Bound, PoolSnapshot, Pooling, Settings, Status};
use proxy::shutdown::{Trigger, shutdown};
use testbed::postgres::{Authentication, PrivateServer, PrivateServerOptions};
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const CONNECTIONS: u32 = 4;

fn policy() -> Policy {
    Policy {
        capacity: admission::Capacity::Unlimited,
        connections: CONNECTIONS,
        long_limit: Some(LongLimit::Fixed(4)),
        cost: Cost::MovingAverage { window: 100 },
        order: Order::ShortestFirst { aging: Some(5.0), floor: Work::from_nanos(250_000_000) },
        queue_max: 1000,
        queue_timeout: Duration::from_secs(120),
        pinned_max: 2,
        types_max: 100,
        ..Policy::default()
    }
}

/// A server and a gate in front of it.
struct World {
    server: PrivateServer,
    port: u16,
    status: Status,
    trigger: Trigger,
    gate: JoinHandle<()>,
}

impl World {
    async fn new(pooling: Pooling) -> Self {
        let options =
            PrivateServerOptions { authentication: Authentication::Md5, ..PrivateServerOptions::default() };
        let server = PrivateServer::start(&options).unwrap();
        let mut settings = Settings::new(Address::inet("127.0.0.1", server.port()));
        settings.listen = Address::inet("127.0.0.1", 0);
        settings.connections = CONNECTIONS;
        settings.pooling = pooling;
        settings.logins_max = 4;
        let (trigger, shutdown) = shutdown();
        let gate = Bound::new(settings, Driver::new("test", policy(), 1), shutdown).await.unwrap();
        let Address::Inet { port, .. } = gate.address() else { panic!("a TCP port") };
        let status = gate.status();
        let gate = tokio::spawn(async move { gate.run().await.unwrap() });
        Self { server, port, status, trigger, gate }
    }

    /// Runs pgbench through the gate, with a thread for each client: it connects and prepares without
    /// looking after its other clients, which may hold just the connections that it is waiting for. Its
    /// report.
    async fn pgbench(&self, clients: u32, arguments: &[&str]) -> String {
        let output = Command::new(self.server.binaries().program("pgbench"))
            .args(["--host=127.0.0.1", "--username", self.server.user(), "--no-vacuum"])
            .arg(format!("--client={clients}"))
            .arg(format!("--jobs={clients}"))
            .arg(format!("--port={}", self.port))
            .args(arguments)
            .arg("postgres")
            .env("PGPASSWORD", self.server.password())
            .output()
            .await
            .unwrap();
        let (out, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{out}\n{errors}");
        out.into_owned()
    }

    /// How many server processes there are for clients, the asking one aside.
    fn processes(&self) -> u32 {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        self.server.psql(sql).unwrap().trim().parse().unwrap()
    }

    /// The pool that there is, once nobody uses it: a client's process may have said goodbye and ended
    /// before the gate has read it, so it is given ten seconds.
    async fn pool_at_rest(&self) -> PoolSnapshot {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let pools = self.status.pools();
            match pools.as_slice() {
                [pool] if pool.sessions == 0 && pool.idle == pool.connections => return pool.clone(),
                _ => assert!(Instant::now() < deadline, "still in use: {pools:?}"),
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(self) {
        self.trigger.drain();
        self.gate.await.unwrap();
        assert_eq!(self.status.clients(), 0);
    }
}

fn script(statement: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("script.sql");
    std::fs::write(&path, statement).unwrap();
    let argument = format!("--file={}", path.display());
    (directory, argument)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_log_in_for_each_transaction_are_all_served_over_few_connections() {
    let world = World::new(Pooling::Transaction).await;
    let (_directory, file) = script("SELECT 1;\n");
    let report = world.pgbench(12, &[&file, "--connect", "--transactions=20"]).await;
    assert!(report.contains("number of transactions actually processed: 240/240"), "{report}");
    let pool = world.pool_at_rest().await;
    assert!(pool.connections <= CONNECTIONS, "{pool:?}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_lasting_clients_share_few_connections() {
    let world = World::new(Pooling::Transaction).await;
    let (_directory, file) = script("BEGIN;\nSELECT 1;\nSELECT 2;\nEND;\n");
    for mode in ["simple", "extended", "prepared"] {
        let mode = format!("--protocol={mode}");
        let report = world.pgbench(20, &[&file, &mode, "--transactions=20"]).await;
        assert!(report.contains("number of transactions actually processed: 400/400"), "{report}");
        // The pool's spare one is there, too.
        assert!(world.processes() <= CONNECTIONS + 1);
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_session_mode_more_clients_than_connections_take_turns() {
    let world = World::new(Pooling::Session).await;
    let (_directory, file) = script("SELECT 1;\n");
    let report = world.pgbench(12, &[&file, "--connect", "--transactions=20"]).await;
    assert!(report.contains("number of transactions actually processed: 240/240"), "{report}");
    world.end().await;
}
