//! A server's name that comes to mean another server: which clients stay, which move, and when.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a helper of tests fails like a test")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::{Cost, Duration as PolicyDuration, Order, Policy};
use proxy::gate::Driver;
use proxy::postgres::{Bound, Settings, Status};
use proxy::shutdown::{Trigger, shutdown};
use proxy::{Address, Lookup};
use testbed::postgres::{Authentication, PrivateServer, PrivateServerOptions};
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, NoTls};

/// How long a condition may take to hold. Only a hang takes so long.
const BOUND: Duration = Duration::from_secs(60);

fn policy() -> Policy {
    Policy {
        capacity: admission::Capacity::Unlimited,
        connections: 4,
        long_limit: None,
        cost: Cost::MovingAverage { window: 32 },
        order: Order::Fifo,
        queue_max: 1000,
        queue_timeout: PolicyDuration::from_nanos(60_000_000_000),
        pinned_max: 2,
        types_max: 100,
        ..Policy::default()
    }
}

/// What the name `db.example` means at the moment; nothing: the resolver fails.
type Meaning = Arc<Mutex<Vec<SocketAddr>>>;

struct World {
    address: Address,
    status: Status,
    meaning: Meaning,
    servers: [PrivateServer; 2],
    _trigger: Trigger,
}

impl World {
    async fn start() -> Self {
        let options =
            PrivateServerOptions { authentication: Authentication::Trust, ..PrivateServerOptions::default() };
        let servers = [(); 2].map(|()| PrivateServer::start(&options).expect("PostgreSQL starts"));
        let meaning: Meaning = Arc::new(Mutex::new(vec![address_of(&servers[0])]));
        let asked = Arc::clone(&meaning);
        let lookup = Lookup::new(move |host, port| {
            assert_eq!((host, port), ("db.example", 5432));
            let answer = asked.lock().unwrap().clone();
            Box::pin(async move {
                if answer.is_empty() { Err(std::io::Error::other("no resolver")) } else { Ok(answer) }
            })
        });
        let mut settings = Settings::new(Address::inet("db.example", 5432));
        settings.listen = Address::inet("127.0.0.1", 0);
        settings.lookup = lookup;
        settings.dns_ttl = Duration::from_millis(20);
        settings.ask_cores = false;
        settings.ask_defaults = false;
        settings.connections = 4;
        let (trigger, phase) = shutdown();
        let gate = Bound::new(settings, Driver::new("failover", policy(), 1), phase).await.unwrap();
        let (address, status) = (gate.address(), gate.status());
        tokio::spawn(gate.run());
        Self { address, status, meaning, servers, _trigger: trigger }
    }

    fn means(&self, addresses: &[SocketAddr]) {
        *self.meaning.lock().unwrap() = addresses.to_vec();
    }

    async fn client(&self) -> Client {
        let Address::Inet { host, port } = &self.address else { panic!("a TCP port") };
        let url = format!("host={host} port={port} user=postgres dbname=postgres");
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    fn connections(&self) -> u32 {
        self.status.pools().iter().map(|pool| pool.connections).sum()
    }
}

fn address_of(server: &PrivateServer) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server.port()))
}

/// Which server answers a client.
async fn server_of(client: &Client) -> Result<u16, tokio_postgres::Error> {
    let row = client.query_one("SELECT current_setting('port')", &[]).await?;
    Ok(row.get::<_, String>(0).parse().unwrap())
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !condition() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_leave_an_address_that_is_gone_and_transactions_end_first() {
    let world = World::start().await;
    let [first, second] = [&world.servers[0], &world.servers[1]].map(PrivateServer::port);
    let (idle, busy) = (world.client().await, world.client().await);
    assert_eq!(server_of(&idle).await.unwrap(), first);
    busy.batch_execute("BEGIN").await.unwrap();
    assert_eq!(server_of(&busy).await.unwrap(), first);

    world.means(&[address_of(&world.servers[1])]);
    until("only the transaction's connection is left", || world.connections() == 1).await;
    assert_eq!(server_of(&busy).await.unwrap(), first, "a transaction stays where it is");
    busy.batch_execute("COMMIT").await.unwrap();
    until("the last connection has gone", || world.connections() == 0).await;

    // A login goes to the new server, and with it the sessions of its pool.
    let new = world.client().await;
    assert_eq!(server_of(&new).await.unwrap(), second);
    assert_eq!(server_of(&idle).await.unwrap(), second);
    assert_eq!(server_of(&busy).await.unwrap(), second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resolver_that_fails_and_an_answer_that_grows_move_nobody() {
    let world = World::start().await;
    let [first, second] = [&world.servers[0], &world.servers[1]].map(PrivateServer::port);
    let client = world.client().await;
    assert_eq!(server_of(&client).await.unwrap(), first);
    world.means(&[]);
    // A login while the resolver fails goes to the last address known.
    assert_eq!(server_of(&world.client().await).await.unwrap(), first);
    let dead = SocketAddr::from(([127, 0, 0, 1], testbed::postgres::free_port().unwrap()));
    world.means(&[dead, address_of(&world.servers[0]), address_of(&world.servers[1])]);
    assert_eq!(server_of(&world.client().await).await.unwrap(), first, "every address is tried in its turn");
    assert_eq!(server_of(&client).await.unwrap(), first);
    world.means(&[dead, address_of(&world.servers[1])]);
    until("nobody is at the first server", || world.connections() == 0).await;
    assert_eq!(server_of(&world.client().await).await.unwrap(), second);
}
