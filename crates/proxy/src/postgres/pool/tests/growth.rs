//! Pools that grow by the gate's own logins.

use std::time::Duration;

use super::super::growth::{Failure, Opening, asked};
use super::*;

fn credentials() -> Arc<Credentials> {
    Arc::new(Credentials::Nothing)
}

fn reported(timezone: &str) -> Parameters {
    let mut reported = Parameters::default();
    reported.set("TimeZone", timezone);
    reported.set("application_name", "first");
    reported
}

impl World {
    /// A login whose credentials the gate knows, with a connection of its own.
    async fn join_known_first(&self, user: &str) -> (Lease, UnixStream) {
        let (lease, theirs) = self.join(user).await.unwrap();
        lease.remember(credentials(), asked(&[]).0, reported("UTC"));
        (lease, theirs)
    }

    /// Another session, without a connection.
    fn join_known(&self, user: &str) -> Option<(Lease, Parameters)> {
        self.pools.join_known(&user_key(user), &asked(&[]), &credentials())
    }

    fn opening(&self) -> Option<Opening> {
        self.pools.opening(Instant::now())
    }
}

#[tokio::test]
async fn a_pool_wants_as_many_connections_as_it_has_sessions_within_the_budget() {
    let world = World::new(3);
    let (_first, _server) = world.join_known_first("ann").await;
    assert!(world.opening().is_none());
    let others: Vec<_> = (0..4).map(|_| world.join_known("ann").unwrap()).collect();
    // Five sessions, but room for three connections.
    let openings: Vec<_> = std::iter::from_fn(|| world.opening()).collect();
    assert_eq!(openings.len(), 2);
    assert_eq!((openings[0].key.user(), openings[0].key.parameters()[0]), ("ann", ("user", "ann")));
    let mut theirs = Vec::new();
    for opening in openings {
        let (server, their) = server();
        opening.add(server);
        theirs.push(their);
    }
    assert_eq!(world.sizes(), [("ann".to_owned(), 3)]);
    assert!(world.opening().is_none());
    // One is lost, and replaced.
    let server = world.pools.take(others[0].0.pool()).unwrap();
    drop(server);
    assert_eq!(world.heard(others[0].0.pool()), 2);
    world.opening().unwrap().add(super::server().0);
    assert_eq!(world.heard(others[0].0.pool()), 3);
}

#[tokio::test]
async fn a_spare_connection_is_opened_for_the_first_session_that_asks() {
    let world = World::new(1);
    let (first, _server) = world.join_known_first("ann").await;
    assert!(world.pools.spare(first.pool()).await.is_none(), "each session can have a connection");
    let _second = world.join_known("ann").unwrap();
    assert!(world.opening().is_none());
    let opens = async {
        // What is given up leaves no trace.
        drop(world.opening().unwrap());
        tokio::task::yield_now().await;
        let opening = world.opening().unwrap();
        assert!(world.opening().is_none());
        let (spare, theirs) = server();
        opening.add(spare);
        theirs
    };
    let (spare, _theirs) = tokio::join!(biased; world.pools.spare(first.pool()), opens);
    assert!(spare.is_some() && world.opening().is_none());
    assert_eq!(world.sizes(), [("ann".to_owned(), 1)]);
}

#[tokio::test]
async fn a_session_does_not_wait_for_a_spare_connection_that_cannot_be_opened() {
    let world = World::new(1);
    let (first, _server) = world.join_known_first("ann").await;
    let _second = world.join_known("ann").unwrap();
    let fails = async { world.opening().unwrap().fail(Failure::Passing) };
    let (spare, ()) = tokio::join!(biased; world.pools.spare(first.pool()), fails);
    assert!(spare.is_none());
}

#[tokio::test]
async fn what_fails_is_tried_again_after_a_pause_and_wrong_credentials_never() {
    let world = World::new(3);
    let (_first, _server) = world.join_known_first("ann").await;
    let _second = world.join_known("ann").unwrap();
    world.opening().unwrap().fail(Failure::Passing);
    assert!(world.opening().is_none());
    let later = |seconds| Instant::now() + Duration::from_secs(seconds);
    let again = world.pools.opening(later(1)).unwrap();
    again.fail(Failure::Passing);
    assert!(world.pools.opening(later(1)).is_none());
    // One that is given up leaves no trace.
    drop(world.pools.opening(later(2)).unwrap());
    world.pools.opening(later(2)).unwrap().fail(Failure::Credentials);
    assert!(world.pools.opening(later(60)).is_none());
    // A login brings others.
    let _third = world.join_known("ann").unwrap();
    assert!(world.opening().is_some());
}

#[tokio::test]
async fn a_pool_whose_credentials_only_clients_have_does_not_grow() {
    let world = World::new(3);
    let (relayed, _server) = world.join("ann").await.unwrap();
    assert!(world.join_known("ann").is_none());
    drop(world.pools.take(relayed.pool()).unwrap());
    assert!(world.opening().is_none());
    assert!(world.pools.is_lost(relayed.pool()));
    let (known, _server) = world.join_known_first("bob").await;
    drop(world.pools.take(known.pool()).unwrap());
    assert!(!world.pools.is_lost(known.pool()));
    // It has no connection that could serve a session, so that one has to be opened.
    assert!(world.join_known("bob").is_none());
    assert_eq!(world.opening().map(|opening| opening.key.user().to_owned()), Some("bob".to_owned()));
}

#[tokio::test]
async fn a_pool_that_grows_takes_no_more_from_others_than_a_login_may() {
    let world = World::new(4);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(world.join("ann").await.unwrap());
    }
    // Bob's first replaces one of Ann's four, his second another: then both have two.
    held.push(world.join_known_first("bob").await);
    let _more: Vec<_> = (0..5).map(|_| world.join_known("bob").unwrap()).collect();
    let mut theirs = Vec::new();
    while let Some(opening) = world.opening() {
        let (server, their) = server();
        opening.add(server);
        theirs.push(their);
    }
    assert_eq!(world.sizes(), [("ann".to_owned(), 2), ("bob".to_owned(), 2)]);
}

#[tokio::test]
async fn a_pool_that_everybody_left_meanwhile_keeps_nothing() {
    let world = World::new(3);
    let (first, _server) = world.join_known_first("ann").await;
    let second = world.join_known("ann").unwrap();
    let opening = world.opening().unwrap();
    drop((first, second));
    drop(world.pools.take(opening_pool(&world)));
    let (server, theirs) = server();
    opening.add(server);
    assert_eq!(world.sizes(), []);
    assert_eq!(rest(theirs).await, b"X\0\0\0\x04");
}

fn opening_pool(world: &World) -> PoolId {
    let heard = world.heard.lock();
    *heard.keys().next().unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_a_server_said_counts_for_a_minute_and_for_those_who_ask_the_same() {
    let world = World::new(3);
    let (_first, _server) = world.join_known_first("ann").await;
    let join = |parameters: &[(&str, &str)]| {
        world
            .pools
            .join_known(&user_key("ann"), &asked(&pairs(parameters)), &credentials())
            .map(|(_, told)| told)
    };
    assert_eq!(join(&[]).unwrap().get("application_name"), Some("first"));
    // Nobody has asked for these yet.
    assert!(join(&[("TimeZone", "utc")]).is_none());
    assert!(join(&[("application_name", "psql")]).is_none());
    tokio::time::advance(Duration::from_secs(59)).await;
    assert!(join(&[]).is_some());
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(join(&[]).is_none());
}

#[tokio::test]
async fn a_plain_application_name_is_told_as_it_was_asked_for() {
    let world = World::new(3);
    let (lease, _server) = world.join("ann").await.unwrap();
    lease.remember(credentials(), asked(&pairs(&[("application_name", "first")])).0, reported("UTC"));
    let told = |name: &str| {
        let asked = asked(&pairs(&[("Application_Name", name), ("user", "ann")]));
        let (_, told) = world.pools.join_known(&user_key("ann"), &asked, &credentials())?;
        told.get("application_name").map(str::to_owned)
    };
    assert_eq!(told("second").as_deref(), Some("second"));
    assert_eq!(told("").as_deref(), Some(""));
    // The server changes these: what it makes of them only it knows.
    assert_eq!(told("sm\u{f6}rg\u{e5}s"), None);
    assert_eq!(told(&"x".repeat(64)), None);
}
