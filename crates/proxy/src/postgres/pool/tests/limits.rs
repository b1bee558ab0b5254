//! Tests of what bounds single pools, of connections that are lent, and of idle ones that nobody needs.

use super::super::{Keep, Limits};
use super::*;

async fn join(world: &World, key: PoolKey, (role, database): (u32, u32)) -> (Lease, UnixStream) {
    let (mut server, theirs) = server();
    server.limits = Some(Limits { role, database });
    (world.pools.join(key, server, Instant::now()).await.unwrap(), theirs)
}

fn in_database(user: &str, database: &str) -> PoolKey {
    key(&pairs(&[("user", user), ("database", database)]))
}

#[tokio::test]
async fn the_pools_of_a_role_have_together_what_it_is_limited_to() {
    let world = World::new(20);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(join(&world, in_database("ann", "shop"), (3, u32::MAX)).await);
    }
    // The first of a pool comes in, because the server has let it in.
    for _ in 0..2 {
        held.push(join(&world, in_database("ann", "store"), (3, u32::MAX)).await);
    }
    held.push(join(&world, in_database("bob", "shop"), (u32::MAX, u32::MAX)).await);
    held.push(join(&world, in_database("bob", "shop"), (u32::MAX, u32::MAX)).await);
    let sizes: Vec<_> = world.sizes().into_iter().map(|(_, size)| size).collect();
    // One of the first three left for the fourth.
    assert_eq!(sizes, [2, 1, 2]);
    assert_eq!(world.pools.reachable(), u32::MAX, "bob isn't limited");
}

#[tokio::test]
async fn what_limits_allow_is_the_sum_over_roles_and_over_databases() {
    let world = World::new(20);
    let _one = join(&world, in_database("ann", "shop"), (3, 10)).await;
    let _two = join(&world, in_database("bob", "shop"), (4, 10)).await;
    assert_eq!(world.pools.reachable(), 7);
    let _three = join(&world, in_database("bob", "shop"), (40, 10)).await;
    assert_eq!(world.pools.reachable(), 10);
}

#[tokio::test]
async fn a_role_that_was_refused_a_connection_has_a_quarter_less() {
    let world = World::new(20);
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(join(&world, user_key("ann"), (20, u32::MAX)).await);
    }
    world.pools.lower_role("bob");
    assert_eq!(world.sizes(), [("ann".to_owned(), 8)]);
    world.pools.lower_role("ann");
    assert_eq!(world.sizes(), [("ann".to_owned(), 6)]);
    world.pools.lower_database("ann");
    assert_eq!(world.sizes(), [("ann".to_owned(), 4)]);
}

#[tokio::test]
async fn the_gate_knows_of_one_less_while_a_connection_is_lent() {
    let world = World::new(4);
    let (ann, _one) = world.join("ann").await.unwrap();
    let (_ann, two) = world.join("ann").await.unwrap();
    let lent = world.pools.lend_idle().unwrap();
    assert_eq!(world.heard(ann.pool()), 1);
    lent.give_back();
    assert_eq!(world.heard(ann.pool()), 2);
    let lent = world.pools.lend_idle().unwrap();
    drop(lent);
    assert_eq!((world.heard(ann.pool()), world.sizes()), (1, vec![("ann".to_owned(), 1)]));
    assert_eq!(rest(two).await, b"", "a dropped connection is closed in the middle of whatever it says");
}

#[tokio::test]
async fn what_a_lent_connection_has_heard_of_limits_counts_from_then_on() {
    let world = World::new(4);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(world.join("ann").await.unwrap());
    }
    let mut lent = world.pools.lend_idle().unwrap();
    lent.server().unwrap().limits = Some(Limits { role: 2, database: u32::MAX });
    lent.give_back();
    world.pools.maintain();
    assert_eq!(world.sizes(), [("ann".to_owned(), 2)]);
    assert_eq!(world.heard(held[0].0.pool()), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_the_gate_can_fill_keeps_what_a_minute_has_needed_and_doubles_when_short() {
    let world = World::new(20);
    world.pools.keep(Keep::Needed);
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(world.join("ann").await.unwrap());
    }
    let (asked, _) = super::super::growth::asked(&[]);
    held[0].0.remember(Arc::new(Credentials::Nothing), asked, Parameters::default());
    let pool = held[0].0.pool();
    let work = |count: usize| {
        let servers: Vec<_> = (0..count).map(|_| world.pools.take(pool).unwrap()).collect();
        servers.into_iter().for_each(|server| world.pools.put(server));
    };
    work(3);
    tokio::time::advance(Duration::from_secs(59)).await;
    world.pools.maintain();
    assert_eq!(world.sizes(), [("ann".to_owned(), 8)]);
    tokio::time::advance(Duration::from_secs(1)).await;
    world.pools.maintain();
    assert_eq!(world.sizes(), [("ann".to_owned(), 3)]);
    assert!(world.pools.opening(Instant::now()).is_none(), "nobody needs more");
    work(3);
    let openings: Vec<_> = std::iter::from_fn(|| world.pools.opening(Instant::now())).collect();
    assert_eq!(openings.len(), 3, "twice as many, once the last idle one was taken");
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_only_clients_can_fill_keeps_its_connections() {
    let world = World::new(20);
    world.pools.keep(Keep::Needed);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(world.join("ann").await.unwrap());
    }
    tokio::time::advance(Duration::from_secs(600)).await;
    world.pools.maintain();
    assert_eq!(world.sizes(), [("ann".to_owned(), 4)]);
}
