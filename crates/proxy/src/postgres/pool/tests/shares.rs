//! Connections that move to the pools whose requests wait.

use admission::PoolSet;

use super::super::growth::{Opening, asked};
use super::super::retire::RESTS_MIN;
use super::*;

/// Two pools that the gate can fill, with two connections each; the server's ends stay open.
struct Two {
    world: World,
    ann: Vec<Lease>,
    bob: Vec<Lease>,
    ends: Vec<UnixStream>,
}

impl Two {
    async fn start() -> Self {
        let mut two = Self { world: World::new(4), ann: Vec::new(), bob: Vec::new(), ends: Vec::new() };
        for user in ["ann", "bob"] {
            for _ in 0..2 {
                let (lease, end) = two.world.join(user).await.unwrap();
                lease.remember(Arc::new(Credentials::Nothing), asked(&[]).0, Parameters::default());
                two.ends.push(end);
                let leases = if user == "ann" { &mut two.ann } else { &mut two.bob };
                leases.push(lease);
            }
        }
        for _ in 0..6 {
            let known = (asked(&[]), Arc::new(Credentials::Nothing));
            two.bob.push(two.world.pools.join_known(&user_key("bob"), &known.0, &known.1).unwrap().0);
        }
        two
    }

    fn take(&self, leases: &[Lease]) -> Server {
        self.world.pools.take(leases[0].pool()).unwrap()
    }

    /// The requests of these pools wait for a connection: short ones, and others.
    fn note(&self, shorts: &[&Lease], heavy: &[&Lease]) {
        let set = |leases: &[&Lease]| {
            let mut set = PoolSet::NONE;
            leases.iter().for_each(|lease| set.insert(lease.pool()));
            set
        };
        self.world.pools.note_shortage(Shortage { shorts: set(shorts), heavy: set(heavy) });
    }

    fn opening(&self) -> Option<Opening> {
        self.world.pools.opening(Instant::now())
    }

    /// Opens what is wanted. How many connections ann's and bob's pools have then.
    fn grow(&mut self) -> (u32, u32) {
        while let Some(opening) = self.opening() {
            let (server, end) = server();
            opening.add(server);
            self.ends.push(end);
        }
        self.sizes()
    }

    fn sizes(&self) -> (u32, u32) {
        (self.world.heard(self.ann[0].pool()), self.world.heard(self.bob[0].pool()))
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_moves_to_a_pool_whose_shorts_wait_and_stays_there() {
    let mut two = Two::start().await;
    // Ann's other session waits with a long request, that may not have the last connection of her pool.
    let _long = two.take(&two.ann);
    let _busy = [two.take(&two.bob), two.take(&two.bob)];
    two.note(&[&two.bob[0]], &[&two.ann[0]]);
    assert_eq!(two.grow(), (2, 2), "it may be needed in a moment");
    tokio::time::advance(RESTS_MIN).await;
    two.note(&[&two.bob[0]], &[&two.ann[0]]);
    assert_eq!(two.grow(), (1, 3));
    let third = two.take(&two.bob);
    for _ in 0..100 {
        tokio::time::advance(RESTS_MIN).await;
        two.note(&[&two.bob[0]], &[&two.ann[0]]);
        assert_eq!(two.grow(), (1, 3), "it is the last one, and another would not help the long request");
    }
    two.world.pools.put(third);
    assert_eq!(two.grow(), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_used_now_and_then_does_not_move() {
    let mut two = Two::start().await;
    let _long = two.take(&two.ann);
    let _busy = [two.take(&two.bob), two.take(&two.bob)];
    for _ in 0..10 {
        two.note(&[&two.bob[0]], &[]);
        tokio::time::advance(RESTS_MIN / 2).await;
        two.world.pools.put(two.take(&two.ann));
        assert_eq!(two.grow(), (2, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_whose_requests_wait_has_its_share_back_from_one_that_is_always_busy() {
    let mut two = Two::start().await;
    let busy = [two.take(&two.bob), two.take(&two.bob)];
    two.note(&[&two.bob[0]], &[]);
    tokio::time::advance(RESTS_MIN).await;
    two.note(&[&two.bob[0]], &[]);
    assert_eq!(two.grow(), (1, 3));
    let (third, _ann) = (two.take(&two.bob), two.take(&two.ann));
    two.world.pools.put(third);
    assert_eq!(two.sizes(), (1, 3), "nobody of ann's waits");
    let _third = two.take(&two.bob);
    two.note(&[&two.bob[0], &two.ann[0]], &[]);
    let [first, second] = busy;
    two.world.pools.put(first);
    assert_eq!(two.sizes(), (1, 2), "it is closed in favor of ann's");
    two.world.pools.put(second);
    assert_eq!(two.grow(), (2, 2), "one was owed");
}
