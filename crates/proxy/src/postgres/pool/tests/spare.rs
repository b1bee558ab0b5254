//! The spare connection of a pool.

use super::super::spare::SPARES_MAX;
use super::*;
use tokio::time::timeout;

/// How long what must not come is waited for. The clock of these tests stands until nothing else is to be
/// done.
const WAIT: Duration = Duration::from_secs(60);

fn has_spare(world: &World) -> bool {
    world.pools.snapshot().iter().any(|pool| pool.has_spare)
}

#[tokio::test]
async fn the_first_superfluous_connection_is_kept_beside_the_budget() {
    let world = World::new(1);
    let (lease, _one) = world.join("ann").await.unwrap();
    assert!(!has_spare(&world) && world.pools.spare(lease.pool()).await.is_none());
    let (_second, _two) = world.join("ann").await.unwrap();
    assert!(has_spare(&world));
    assert_eq!((world.heard(lease.pool()), world.sizes()), (1, vec![("ann".to_owned(), 1)]));
    let spare = world.pools.spare(lease.pool()).await.unwrap();
    assert!(world.pools.take(lease.pool()).is_some_and(|server| server.id != spare.id));
}

#[tokio::test(start_paused = true)]
async fn sessions_have_the_spare_connection_one_after_the_other() {
    let world = World::new(1);
    let (lease, _one) = world.join("ann").await.unwrap();
    let (_second, _two) = world.join("ann").await.unwrap();
    let (_third, three) = world.join("ann").await.unwrap();
    assert_eq!(rest(three).await, b"X\0\0\0\x04", "one is enough");
    let first = world.pools.spare(lease.pool()).await.unwrap();
    let id = first.id;
    assert!(timeout(WAIT, world.pools.spare(lease.pool())).await.is_err());
    let (again, ()) = tokio::join!(biased; world.pools.spare(lease.pool()), async { world.pools.put(first) });
    let again = again.unwrap();
    assert_eq!(again.id, id);
    // The budget has never heard of it.
    drop(again);
    assert_eq!(world.heard(lease.pool()), 1);
    assert!(!has_spare(&world) && world.pools.spare(lease.pool()).await.is_none());
}

#[tokio::test]
async fn who_waits_for_a_spare_connection_that_is_lost_hears_that_there_is_none() {
    let world = World::new(1);
    let (lease, _one) = world.join("ann").await.unwrap();
    let (_second, _two) = world.join("ann").await.unwrap();
    let spare = world.pools.spare(lease.pool()).await.unwrap();
    let (next, ()) = tokio::join!(biased; world.pools.spare(lease.pool()), async { drop(spare) });
    assert!(next.is_none());
    // The next superfluous connection takes its place.
    let (_third, _three) = world.join("ann").await.unwrap();
    assert!(world.pools.spare(lease.pool()).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_spare_connection_goes_soon_after_the_last_session() {
    let world = World::new(1);
    let (first, _one) = world.join("ann").await.unwrap();
    let (second, two) = world.join("ann").await.unwrap();
    drop(second);
    world.pools.maintain();
    assert!(has_spare(&world));
    drop(first);
    tokio::time::advance(DESERTED_MAX).await;
    world.pools.maintain();
    assert!(!has_spare(&world));
    assert_eq!(rest(two).await, b"X\0\0\0\x04");
}

#[tokio::test]
async fn a_spare_connection_that_the_server_closed_is_not_lent() {
    let world = World::new(1);
    let (lease, _one) = world.join("ann").await.unwrap();
    let (_second, two) = world.join("ann").await.unwrap();
    let mut spare = world.pools.spare(lease.pool()).await.unwrap();
    drop(two);
    // The runtime has to see that before a look without waiting can.
    let _ = spare.stream.read(&mut [0]).await;
    world.pools.put(spare);
    assert!(world.pools.spare(lease.pool()).await.is_none());
    assert_eq!(world.pools.idle_lost(), 1);
}

#[tokio::test]
async fn a_newer_generation_ends_a_spare_connection() {
    let world = World::new(1);
    let (lease, _one) = world.join("ann").await.unwrap();
    let (_second, idle) = world.join("ann").await.unwrap();
    world.pools.change(1, SPARES_MAX, 2, 1);
    world.pools.maintain();
    assert_eq!(rest(idle).await, b"X\0\0\0\x04");
    assert!(world.pools.spare(lease.pool()).await.is_none());
}

#[tokio::test]
async fn there_are_few_spare_connections() {
    let world = World::new(u32::try_from(SPARES_MAX).unwrap() + 1);
    let mut sessions = Vec::new();
    for round in 0..2 {
        for user in 0..=SPARES_MAX {
            sessions.push((round, world.join(&user.to_string()).await.unwrap()));
        }
    }
    let spares = world.pools.snapshot().iter().filter(|pool| pool.has_spare).count();
    assert_eq!(spares, SPARES_MAX);
}
