//! Tests of the pools, over socket pairs instead of servers.

mod growth;
mod limits;
mod shares;
mod spare;

use std::collections::HashMap;
use std::time::Duration;

use bytes::BytesMut;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::*;
use crate::postgres::auth::Credentials;
use crate::postgres::parameters::Parameters;
use crate::postgres::server::Greeting;
use crate::stream::Stream;

/// Pools whose sizes are written down as the hook hears them.
struct World {
    pools: Arc<Pools>,
    heard: Arc<Mutex<HashMap<PoolId, u32>>>,
}

impl World {
    fn new(connections: u32) -> Self {
        let heard: Arc<Mutex<HashMap<PoolId, u32>>> = Arc::default();
        let hook = Arc::clone(&heard);
        let changed = Box::new(move |pool, size| {
            hook.lock().insert(pool, size);
        });
        Self { pools: Arc::new(Pools::new(connections, 2, changed)), heard }
    }

    fn heard(&self, pool: PoolId) -> u32 {
        self.heard.lock().get(&pool).copied().unwrap_or_default()
    }

    /// A login that doesn't wait; the server's end of its connection comes with it.
    async fn join(&self, user: &str) -> Result<(Lease, UnixStream), JoinError> {
        let (server, theirs) = server();
        let lease = self.pools.join(user_key(user), server, Instant::now()).await?;
        Ok((lease, theirs))
    }

    fn sizes(&self) -> Vec<(String, u32)> {
        self.pools.snapshot().into_iter().map(|pool| (pool.user, pool.connections)).collect()
    }
}

fn server() -> (Server, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Server::new(Stream::unix(ours), BytesMut::new(), Greeting::default()), theirs)
}

fn pairs(parameters: &[(&str, &str)]) -> Vec<(String, String)> {
    parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn user_key(user: &str) -> PoolKey {
    key(&pairs(&[("user", user)]))
}

/// Everything that came, to the end of the stream.
async fn rest(mut stream: UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    bytes
}

#[test]
fn tracked_settings_and_spelling_do_not_part_pools() {
    let plain = user_key("ann");
    assert_eq!(plain, key(&pairs(&[("user", "ann"), ("database", "ann")])));
    assert_eq!(plain, key(&pairs(&[("user", "ann"), ("TimeZone", "UTC"), ("APPLICATION_NAME", "x")])));
    assert_eq!(plain, key(&pairs(&[("user", "ann"), ("_pq_.something", "1")])));
    // In capitals it is a setting, which another session must not get.
    let capitals = key(&pairs(&[("user", "ann"), ("_PQ_.x", "1")]));
    assert_ne!(plain, capitals);
    assert_ne!(capitals, key(&pairs(&[("user", "ann"), ("_PQ_.x", "2")])));
    let search = key(&pairs(&[("user", "ann"), ("search_path", "a"), ("options", "-c x=y")]));
    assert_eq!(search, key(&pairs(&[("options", "-c x=y"), ("Search_Path", "a"), ("user", "ann")])));
    assert_eq!(
        search,
        key(&pairs(&[("user", "ann"), ("search_path", "b"), ("SEARCH_PATH", "a"), ("options", "-c x=y")]))
    );
}

#[test]
fn only_the_servers_spelling_names_a_user() {
    let ann = key(&pairs(&[("user", "ann"), ("USER", "bob"), ("Database", "shop")]));
    assert_eq!((ann.user.as_str(), ann.database.as_str()), ("ann", "ann"));
    assert_ne!(ann, user_key("ann"));
}

#[test]
fn what_changes_results_parts_pools() {
    let plain = user_key("ann");
    for other in [
        &[("user", "bob"), ("database", "ann")][..],
        &[("user", "ann"), ("database", "shop")],
        &[("user", "ann"), ("search_path", "a")],
        &[("user", "ann"), ("extra_float_digits", "3")],
    ] {
        assert_ne!(plain, key(&pairs(other)));
    }
}

#[tokio::test]
async fn fresh_connections_join_while_there_is_room() {
    let world = World::new(2);
    let (first, _one) = world.join("ann").await.unwrap();
    let (second, _two) = world.join("ann").await.unwrap();
    assert_eq!(first.pool(), second.pool());
    assert_eq!(world.heard(first.pool()), 2);
    let server = world.pools.take(first.pool()).unwrap();
    assert_eq!(server.pool, first.pool());
    let _other = world.pools.take(first.pool()).unwrap();
    assert!(world.pools.take(first.pool()).is_none());
    world.pools.put(server);
    assert!(world.pools.take(first.pool()).is_some());
}

#[tokio::test]
async fn at_the_bound_a_superfluous_connection_is_closed_and_the_session_lives() {
    let world = World::new(1);
    let (first, _one) = world.join("ann").await.unwrap();
    let (second, _spare) = world.join("ann").await.unwrap();
    let (_third, three) = world.join("ann").await.unwrap();
    assert_eq!(rest(three).await, b"X\0\0\0\x04");
    assert_eq!(world.heard(first.pool()), 1);
    drop(first);
    assert!(world.pools.take(second.pool()).is_some());
}

#[tokio::test]
async fn a_new_key_takes_an_idle_connection_of_a_pool_that_has_more_than_one() {
    let world = World::new(2);
    let (ann, one) = world.join("ann").await.unwrap();
    let (_ann, _two) = world.join("ann").await.unwrap();
    let (bob, _three) = world.join("bob").await.unwrap();
    assert_eq!(rest(one).await, b"X\0\0\0\x04");
    assert_eq!((world.heard(ann.pool()), world.heard(bob.pool())), (1, 1));
}

#[tokio::test]
async fn the_last_connection_of_a_pool_with_living_sessions_is_not_taken_away() {
    let world = World::new(1);
    let (ann, _one) = world.join("ann").await.unwrap();
    let error = world.join("bob").await.err().unwrap();
    assert_eq!(error, JoinError::Held { connections: 1 });
    assert_eq!(world.sizes(), [("ann".to_owned(), 1)]);
    assert!(world.pools.take(ann.pool()).is_some());
}

#[tokio::test]
async fn a_pool_without_sessions_stays_warm_until_somebody_needs_its_place() {
    let world = World::new(1);
    let (ann, one) = world.join("ann").await.unwrap();
    drop(ann);
    assert_eq!(world.sizes(), [("ann".to_owned(), 1)]);
    let (_bob, _two) = world.join("bob").await.unwrap();
    assert_eq!(rest(one).await, b"X\0\0\0\x04");
    assert_eq!(world.sizes(), [("bob".to_owned(), 1)]);
}

#[tokio::test]
async fn a_connection_in_use_is_never_taken_away() {
    let world = World::new(2);
    let (ann, _one) = world.join("ann").await.unwrap();
    let (_ann, _two) = world.join("ann").await.unwrap();
    let _in_use = (world.pools.take(ann.pool()).unwrap(), world.pools.take(ann.pool()).unwrap());
    assert!(world.join("bob").await.is_err());
    assert_eq!(world.heard(ann.pool()), 2);
}

#[tokio::test]
async fn a_login_waits_for_a_connection_to_become_idle() {
    let world = World::new(2);
    let (ann, _one) = world.join("ann").await.unwrap();
    let (_ann, _two) = world.join("ann").await.unwrap();
    let (first, _second) = (world.pools.take(ann.pool()).unwrap(), world.pools.take(ann.pool()).unwrap());
    let (server, _theirs) = server();
    let deadline = Instant::now() + Duration::from_secs(3600);
    let bob = world.pools.join(user_key("bob"), server, deadline);
    let put = async { world.pools.put(first) };
    // Polled in order: the login waits first.
    let (bob, ()) = tokio::join!(biased; bob, put);
    assert_eq!(world.heard(bob.unwrap().pool()), 1);
    assert_eq!(world.heard(ann.pool()), 1);
}

#[tokio::test]
async fn a_login_waits_for_the_last_session_of_another_key_to_end() {
    let world = World::new(1);
    let (ann, _one) = world.join("ann").await.unwrap();
    let (server, _theirs) = server();
    let deadline = Instant::now() + Duration::from_secs(3600);
    let bob = world.pools.join(user_key("bob"), server, deadline);
    let (bob, ()) = tokio::join!(biased; bob, async { drop(ann) });
    assert!(bob.is_ok());
    assert_eq!(world.pools.state.lock().waiting, 0);
}

#[tokio::test]
async fn no_more_logins_wait_than_may() {
    let world = World::new(1);
    let (ann, _one) = world.join("ann").await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(3600);
    let join = |user| {
        let ((server, theirs), pools) = (server(), &world.pools);
        async move { (pools.join(user_key(user), server, deadline).await, theirs) }
    };
    let (one, two, three) = (join("bob"), join("bob"), join("bob"));
    let leave = async { drop(ann) };
    let (one, two, three, ()) = tokio::join!(biased; one, two, three, leave);
    assert!(one.0.is_ok() && two.0.is_ok());
    assert_eq!(three.0.err(), Some(JoinError::Held { connections: 1 }));
}

#[tokio::test]
async fn who_comes_later_gets_a_fair_share() {
    let world = World::new(6);
    let mut sessions = Vec::new();
    for user in ["ann", "ann", "ann", "ann", "ann", "ann", "bob", "bob", "bob", "bob", "bob"] {
        sessions.push(world.join(user).await.unwrap());
    }
    assert_eq!(world.sizes(), [("ann".to_owned(), 3), ("bob".to_owned(), 3)]);
}

#[tokio::test]
async fn a_pool_grows_into_the_place_of_one_that_is_deserted() {
    let world = World::new(3);
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(world.join("ann").await.unwrap());
    }
    let (leases, _alive): (Vec<_>, Vec<_>) = sessions.drain(..).unzip();
    drop(leases);
    for _ in 0..3 {
        sessions.push(world.join("bob").await.unwrap());
    }
    assert_eq!(world.sizes(), [("bob".to_owned(), 3)]);
}

#[tokio::test]
async fn there_are_no_more_pools_than_the_gate_knows() {
    let world = World::new(1000);
    let mut sessions = Vec::new();
    for number in 0..PoolId::COUNT {
        sessions.push(world.join(&format!("user{number}")).await.unwrap());
    }
    assert_eq!(world.join("late").await.err(), Some(JoinError::TooManyPools));
    let freed = sessions.swap_remove(7).0.pool();
    let (late, _theirs) = world.join("late").await.unwrap();
    assert_eq!(late.pool(), freed);
    assert_eq!(world.heard(freed), 1);
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_not_handed_out() {
    let world = World::new(3);
    let (ann, mut one) = world.join("ann").await.unwrap();
    let (_ann, mut two) = world.join("ann").await.unwrap();
    let (_also, _three) = world.join("ann").await.unwrap();
    let mut servers: Vec<_> = std::iter::from_fn(|| world.pools.take(ann.pool())).collect();
    two.write_all(b"E\0\0\0\x0fSFATAL\0C5\0\0").await.unwrap();
    one.shutdown().await.unwrap();
    // The one that joined last was taken first. The runtime has to see what came before a look without
    // waiting can.
    for server in &mut servers[1..] {
        let _ = server.stream.readable().await;
    }
    servers.drain(..).for_each(|server| world.pools.put(server));
    let alive = world.pools.take(ann.pool());
    assert!(alive.is_some());
    assert!(world.pools.take(ann.pool()).is_none());
    assert_eq!((world.heard(ann.pool()), world.pools.idle_lost()), (1, 2));
}

#[tokio::test]
async fn maintenance_lets_closed_connections_go_and_a_pool_can_run_empty() {
    let world = World::new(2);
    let (ann, one) = world.join("ann").await.unwrap();
    let (_ann, two) = world.join("ann").await.unwrap();
    world.pools.maintain();
    assert!(!world.pools.is_lost(ann.pool()));
    let in_use = world.pools.take(ann.pool()).unwrap();
    let mut idle = world.pools.take(ann.pool()).unwrap();
    drop((one, two));
    let _ = idle.stream.readable().await;
    world.pools.put(idle);
    world.pools.maintain();
    assert_eq!(world.heard(ann.pool()), 1);
    assert!(!world.pools.is_lost(ann.pool()));
    drop(in_use);
    assert!(world.pools.is_lost(ann.pool()));
    assert_eq!(world.heard(ann.pool()), 0);
}

#[tokio::test]
async fn a_connection_whose_sessions_task_fails_leaves_the_budget() {
    let world = World::new(1);
    let (ann, _one) = world.join("ann").await.unwrap();
    let server = world.pools.take(ann.pool()).unwrap();
    let task = tokio::spawn(async move {
        let _server = server;
        panic!("a fault of gatekeeper's own");
    });
    assert!(task.await.is_err());
    assert_eq!(world.heard(ann.pool()), 0);
    drop(ann);
    assert!(world.join("bob").await.is_ok());
}

#[tokio::test]
async fn the_end_closes_what_is_idle() {
    let world = World::new(2);
    let (ann, one) = world.join("ann").await.unwrap();
    world.pools.close_idle();
    assert_eq!(rest(one).await, b"X\0\0\0\x04");
    assert!(world.pools.is_lost(ann.pool()));
}

/// One step of a random history.
#[derive(Clone, Copy, Debug)]
enum Step {
    Join(u8),
    Leave(usize),
    Take(usize),
    Put(usize),
    Lose(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..4u8).prop_map(Step::Join),
        1 => any::<usize>().prop_map(Step::Leave),
        3 => any::<usize>().prop_map(Step::Take),
        2 => any::<usize>().prop_map(Step::Put),
        1 => any::<usize>().prop_map(Step::Lose),
    ]
}

/// Plays a history and checks after each step what must always hold.
async fn play(connections: u32, steps: &[Step]) {
    let world = World::new(connections);
    let (mut sessions, mut taken, mut ends) = (Vec::<Lease>::new(), Vec::<Server>::new(), Vec::new());
    for step in steps {
        match *step {
            Step::Join(user) => {
                if let Ok((lease, end)) = world.join(&user.to_string()).await {
                    assert!(!world.pools.is_lost(lease.pool()), "a session starts with a connection");
                    sessions.push(lease);
                    ends.push(end);
                }
            }
            Step::Leave(at) if !sessions.is_empty() => drop(sessions.swap_remove(at % sessions.len())),
            Step::Take(at) if !sessions.is_empty() => {
                taken.extend(world.pools.take(sessions[at % sessions.len()].pool()));
            }
            Step::Put(at) if !taken.is_empty() => world.pools.put(taken.swap_remove(at % taken.len())),
            Step::Lose(at) if !taken.is_empty() => {
                drop(taken.swap_remove(at % taken.len()));
            }
            _ => {}
        }
        let state = world.pools.state.lock();
        let sizes = state.pools.iter().flatten().map(|pool| pool.size).sum::<u32>();
        assert_eq!(sizes, state.total);
        assert!(state.total <= connections);
        for index in 0..PoolId::COUNT {
            let id = PoolId::new(u8::try_from(index).unwrap()).unwrap();
            let (size, idle, living) = state.pools[index]
                .as_ref()
                .map_or((0, 0, 0), |pool| (pool.size, pool.idle.len(), pool.sessions as usize));
            assert_eq!(world.heard(id), size, "the gate knows the size");
            assert_eq!(size as usize, idle + taken.iter().filter(|server| server.pool == id).count());
            assert_eq!(living, sessions.iter().filter(|lease| lease.pool() == id).count());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn sizes_are_bounded_and_told_whatever_happens(
        connections in 1..8u32,
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(connections, &steps));
    }
}

#[tokio::test]
async fn a_fresh_connection_is_not_turned_away_for_dead_ones() {
    let world = World::new(2);
    let (first, end) = world.join("ann").await.unwrap();
    let (second, other) = world.join("ann").await.unwrap();
    drop((first, second, end, other));
    // Nobody has looked at the idle ones since.
    let (lease, _alive) = world.join("ann").await.unwrap();
    assert!(world.pools.take(lease.pool()).is_some());
    assert_eq!(world.sizes(), [("ann".to_owned(), 1)]);
}

#[tokio::test]
async fn fewer_connections_are_reached_as_they_come_back() {
    let world = World::new(4);
    let (lease, _theirs) = world.join("ann").await.unwrap();
    let mut ends = Vec::new();
    for _ in 0..3 {
        ends.push(world.join("ann").await.unwrap());
    }
    let taken: Vec<_> = (0..3).map(|_| world.pools.take(lease.pool()).unwrap()).collect();
    world.pools.change(2, SPARES_MAX, 2, 0);
    // The idle one went at once.
    assert_eq!(world.sizes(), [("ann".to_owned(), 3)]);
    for server in taken {
        world.pools.put(server);
    }
    assert_eq!(world.sizes(), [("ann".to_owned(), 2)]);
    assert_eq!(world.heard(lease.pool()), 2);
    world.pools.change(4, SPARES_MAX, 2, 0);
    ends.push(world.join("ann").await.unwrap());
    assert_eq!(world.sizes(), [("ann".to_owned(), 3)]);
}

#[tokio::test]
async fn older_connections_serve_until_a_newer_one_is_there_and_go_as_they_come_back() {
    let world = World::new(2);
    let (lease, _first) = world.join("ann").await.unwrap();
    let (_other, _second) = world.join("ann").await.unwrap();
    world.pools.change(2, SPARES_MAX, 2, 1);
    assert_eq!(world.sizes(), [("ann".to_owned(), 2)]);
    let older = world.pools.take(lease.pool()).unwrap();
    world.pools.put(older);
    let older = world.pools.take(lease.pool()).unwrap();

    // The budget is full, and still the newer one comes in.
    let (mut newer, _theirs) = server();
    newer.generation = 1;
    let _third = world.pools.join(user_key("ann"), newer, Instant::now()).await.unwrap();
    assert_eq!(world.sizes(), [("ann".to_owned(), 2)], "the idle older one has gone");
    world.pools.put(older);
    assert_eq!(world.sizes(), [("ann".to_owned(), 1)]);
    assert_eq!(world.heard(lease.pool()), 1);
    assert_eq!(world.pools.take(lease.pool()).unwrap().generation, 1);
}

#[tokio::test]
async fn a_generation_is_never_followed_by_an_older_one() {
    let world = World::new(2);
    world.pools.change(2, SPARES_MAX, 1, 2);
    let (mut newest, _theirs) = server();
    newest.generation = 2;
    let lease = world.pools.join(user_key("ann"), newest, Instant::now()).await.unwrap();
    // Two changes that were made at the same time are told in any order.
    world.pools.change(2, SPARES_MAX, 1, 1);
    let (mut older, _theirs) = server();
    older.generation = 1;
    let _other = world.pools.join(user_key("ann"), older, Instant::now()).await.unwrap();
    world.pools.maintain();
    assert_eq!(world.sizes(), [("ann".to_owned(), 1)]);
    assert_eq!(world.pools.take(lease.pool()).unwrap().generation, 2);
}

#[tokio::test]
async fn connections_that_were_given_other_defaults_than_the_latest_one_are_retired() {
    let world = World::new(2);
    let deadline = Instant::now();
    let given = |rows: &[u8]| {
        let (mut server, theirs) = server();
        server.defaults = Some(Fingerprint::of(rows));
        (server, theirs)
    };
    let ((idle, idle_end), (used, used_end)) = (given(b"old"), given(b"old"));
    let first = world.pools.join(user_key("ann"), idle, deadline).await.unwrap();
    let _second = world.pools.join(user_key("ann"), used, deadline).await.unwrap();
    let used = world.pools.take(first.pool()).unwrap();

    let (fresh, _fresh_end) = given(b"new");
    let fresh_id = fresh.id;
    let _third = world.pools.join(user_key("ann"), fresh, deadline).await.unwrap();
    assert_eq!(rest(idle_end).await, b"X\0\0\0\x04");
    world.pools.put(used);
    assert_eq!(rest(used_end).await, b"X\0\0\0\x04");
    assert_eq!(world.sizes(), [("ann".to_owned(), 1)]);
    assert_eq!(world.pools.take(first.pool()).unwrap().id, fresh_id);
}

#[tokio::test(start_paused = true)]
async fn a_pool_without_sessions_soon_closes_its_connections() {
    let world = World::new(2);
    let (lease, theirs) = world.join("ann").await.unwrap();
    drop(lease);
    world.pools.maintain();
    assert_eq!(world.sizes(), [("ann".to_owned(), 1)]);
    tokio::time::advance(DESERTED_MAX).await;
    world.pools.maintain();
    assert_eq!(rest(theirs).await, b"X\0\0\0\x04");
    assert!(world.sizes().is_empty());
}
