//! Races that sessions run with the gate, on threads of their own.

use std::sync::Barrier;

use admission::{Capacity, Connection, Entry, RequestType};
use futures_util::FutureExt as _;

use super::*;

/// So often both threads come to the same point at the same time.
const ROUNDS: usize = 50_000;

fn driver() -> Arc<Driver> {
    let policy = Policy {
        capacity: Capacity::Unlimited,
        connections: 1,
        queue_max: 10,
        queue_timeout: Duration::from_secs(3600),
        pinned_max: 1,
        types_max: 10,
        suspend_after: Duration::from_secs(3600),
        ..Policy::default()
    };
    let driver = Driver::new("test", policy, 1);
    driver.set_pool(PoolId::default(), 1);
    driver
}

fn arrive(driver: &Arc<Driver>) -> Arrival {
    let request = Request {
        request_type: RequestType(1),
        class: ClassId::DEFAULT,
        pool: PoolId::default(),
        connection: Connection::Needed,
        entry: Entry::Queued,
        client: None,
        tenant: None,
        deadline: None,
    };
    driver.arrive(request, Origin::default(), None, || TypeName::new(RequestType(1), "a type".into()))
}

#[test]
fn who_leaves_while_it_is_being_dispatched_leaks_nothing() {
    let driver = driver();
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        let (leave, leavers) = std::sync::mpsc::sync_channel::<Waiting>(1);
        scope.spawn({
            let barrier = &barrier;
            move || {
                for waiting in leavers {
                    barrier.wait();
                    drop(waiting);
                    barrier.wait();
                }
            }
        });
        for round in 0..ROUNDS {
            let Arrival::Dispatched(permit) = arrive(&driver) else {
                panic!("round {round}: it is not free")
            };
            let Arrival::Waiting(waiting) = arrive(&driver) else { panic!("round {round}: it is not busy") };
            leave.send(waiting).unwrap();
            barrier.wait();
            permit.complete(Outcome::Success, Duration::from_millis(1));
            barrier.wait();
        }
        drop(leave);
    });
    let Snapshot { in_flight, queued, .. } = driver.snapshot();
    assert_eq!((in_flight, queued), (0, 0));
}

#[test]
fn who_leaves_before_it_hears_that_it_was_dispatched_gives_its_turn_to_the_next() {
    let driver = driver();
    let Arrival::Dispatched(permit) = arrive(&driver) else { panic!("it is free") };
    let (Arrival::Waiting(first), Arrival::Waiting(second)) = (arrive(&driver), arrive(&driver)) else {
        panic!("both wait")
    };
    permit.complete(Outcome::Success, Duration::from_millis(1));
    drop(first);
    let permit = second.now_or_never().expect("it is its turn").expect("it is dispatched");
    drop(permit);
    assert_eq!(driver.snapshot().in_flight, 0);
}

#[test]
fn who_is_refused_behind_its_dispatch_counts_once_and_its_story_says_so() {
    let driver = driver();
    let Arrival::Dispatched(permit) = arrive(&driver) else { panic!("it is free") };
    let number = permit.refuse(Reason::PinnedMax);
    assert_eq!(permit.refuse(Reason::PinnedMax), number, "once more in the same transaction");
    let Totals { counts, queue_wait_rejected, .. } = driver.totals();
    assert_eq!((counts.rejected[6], counts.refused(), queue_wait_rejected), (1, 1, Default::default()));
    assert_eq!(driver.snapshot().in_flight, 1, "the rest of it goes on");
    permit.complete(Outcome::Failure, Duration::from_millis(1));
    assert_eq!((driver.totals().counts, driver.types()[0].counts), (counts, counts), "its end isn't counted");
    let story = driver.tell(Ask::Number(number)).1[0].story;
    assert_eq!(story.end, Some(crate::why::End::Refused(Reason::PinnedMax)));
    assert!(driver.take_refused().contains_key(&Reason::PinnedMax));
    let Arrival::Dispatched(next) = arrive(&driver) else { panic!("it is free again") };
    next.complete(Outcome::Success, Duration::from_millis(1));
    assert_eq!(driver.totals().counts.succeeded, 1);
}
