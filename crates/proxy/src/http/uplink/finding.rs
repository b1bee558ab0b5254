//! What the kernel says of the clients' connections, from which an uplink's rate is found.
//!
//! A connection is looked at while it is written to or something stands in it. A response that waits for its
//! turn needs no look: a thousand such responses would make the looks too seldom. The socket of a connection
//! that has ended is kept open until all of it is delivered: the kernel tells of no other.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use admission::{Instant, KernelQueue, Line, RateFinder, Reading};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::GetStruct;
use socket2::SockRef;
use tokio::net::TcpStream;

use crate::clock::Clock;

/// How often the kernel is asked.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long the looks at one connection may be apart, for each connection: 2 % of a core at most.
const LOOK_EACH: Duration = Duration::from_micros(50);
/// The most connections that are looked at.
const CONNECTIONS_MAX: usize = 65_536;
/// How long a connection is looked at that nothing is written to, and one that has ended and isn't delivered.
const IDLE: Duration = Duration::from_millis(200);
const ENDED: Duration = Duration::from_secs(10);

/// The first words of the kernel's `struct tcp_info`, which Linux has had since 4.19.
type Words = [u32; 54];
/// Its second byte is the state of congestion control: from [`REPAIRS`] on it sends again what was lost.
const STATE: usize = 0;
const REPAIRS: u8 = 3;
const SEGMENT: usize = 4;
const UNACKED: usize = 6;
const BEHIND_A_GAP: usize = 7;
const LOST: usize = 8;
const AGAIN: usize = 9;
const LAST_SENT: usize = 11;
const SMOOTHED: usize = 17;
const ACKED: usize = 30;
const UNSENT: usize = 36;
const TRIP: usize = 37;
const SENT: usize = 50;
const SENT_AGAIN: usize = 52;

#[derive(Clone, Copy, Debug)]
struct TcpInfo;

nix::getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, Words, GetStruct<Words>);

#[derive(Debug)]
struct Connection {
    socket: Arc<TcpStream>,
    /// What the kernel said last; `None`: it knows the connection no more.
    reading: Option<Reading>,
    line: Line,
    used: Instant,
}

/// Finds the rate of one uplink.
#[derive(Debug)]
pub(super) struct Finding {
    finder: RateFinder,
    connections: HashMap<usize, Connection>,
    next: Instant,
}

/// Whether something has to be done for a connection that nobody has looked at until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// Looks begin.
    Begins,
    /// Looks go on.
    GoesOn,
}

impl Finding {
    /// Nothing is known of the uplink but its most bytes per second, if the operator has set them.
    pub(super) fn new(ceiling: Option<u64>) -> Self {
        Self { finder: RateFinder::new(ceiling), connections: HashMap::new(), next: Instant::ZERO }
    }

    /// A response is written to this socket.
    pub(super) fn watch(&mut self, now: Instant, socket: &Arc<TcpStream>) -> Watch {
        let key = Arc::as_ptr(socket) as usize;
        if let Some(known) = self.connections.get_mut(&key) {
            known.used = now;
            return Watch::GoesOn;
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            return Watch::GoesOn;
        }
        let mut watch = Watch::GoesOn;
        if self.connections.is_empty() {
            self.finder.begin();
            watch = Watch::Begins;
        }
        // Where the kernel knows no bound, more stands in it than could be ordered.
        let _ = SockRef::from(&**socket).set_tcp_notsent_lowat(self.finder.unsent_max());
        let (socket, line) = (Arc::clone(socket), Line::new(now));
        self.connections.insert(key, Connection { socket, reading: None, line, used: now });
        watch
    }

    /// When to look next; `None`: there is no connection.
    pub(super) fn next(&self) -> Option<Instant> {
        (!self.connections.is_empty()).then_some(self.next)
    }

    /// Looks at all connections. A look that was interrupted doesn't count: it shows no single moment.
    pub(super) fn look(&mut self, clock: &Clock, granted: u64, waiting: u64) {
        let now = clock.now();
        for connection in self.connections.values_mut() {
            connection.reading = read(&connection.socket).ok();
        }
        let connections = u32::try_from(self.connections.len()).unwrap_or(u32::MAX);
        let every = LOOK_EVERY.max(LOOK_EACH * connections);
        self.next = now.after(every);
        if clock.now().since(now) < every / 2 {
            self.observe(now, granted, waiting);
        }
    }

    fn observe(&mut self, now: Instant, granted: u64, waiting: u64) {
        let (mut queue, known) = (KernelQueue::default(), self.finder.known());
        self.connections.retain(|_, connection| {
            let Some(reading) = connection.reading else { return false };
            connection.line.read(now, reading, known, &mut queue);
            let (is_open, idle) = (Arc::strong_count(&connection.socket) > 1, now.since(connection.used));
            match (is_open, reading.unsent + reading.unacked > 0) {
                (true, true) => true,
                (true, false) => idle < IDLE,
                (false, stands) => stands && idle < ENDED,
            }
        });
        self.finder.observe(now, granted, queue, waiting);
    }

    /// The link's rate in bytes per second; `None`: the link isn't the bottleneck.
    pub(super) fn rate(&self) -> Option<u64> {
        self.finder.rate()
    }

    /// The pace of turns in bytes per second; `None`: as fast as clients take them.
    pub(super) fn pace(&self) -> Option<u64> {
        self.finder.pace()
    }
}

fn read(socket: &TcpStream) -> nix::Result<Reading> {
    let words = getsockopt(socket, TcpInfo)?;
    let word = |at: usize| u64::from(words[at]);
    let (low, high) = if cfg!(target_endian = "big") { (1, 0) } else { (0, 1) };
    let long = |at: usize| word(at + low) | word(at + high) << 32;
    let flight = long(SENT).saturating_sub(long(SENT_AGAIN) + long(ACKED));
    let under_way = (word(UNACKED) + word(AGAIN)).saturating_sub(word(BEHIND_A_GAP) + word(LOST));
    Ok(Reading {
        unsent: word(UNSENT),
        flight,
        under_way: flight.min(under_way * word(SEGMENT)),
        unacked: word(UNACKED),
        repairs: words[STATE].to_ne_bytes()[1] >= REPAIRS,
        acked: long(ACKED),
        idle: Duration::from_millis(word(LAST_SENT)),
        // The kernel says the largest number where it knows none.
        trip: Duration::from_micros(word(TRIP) % u64::from(u32::MAX)),
        smoothed: Duration::from_micros(word(SMOOTHED)),
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_kernel_tells_what_stands_in_a_connection_and_what_was_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.write_all(&[7; 50_000]).await.unwrap();
        // The client's kernel takes them.
        while read(&socket).unwrap().acked < 50_000 {
            tokio::task::yield_now().await;
        }
        let taken = read(&socket).unwrap();
        assert_eq!((taken.unsent, taken.flight, taken.unacked), (0, 0, 0));
        assert!(
            taken.acked <= 50_001 && taken.smoothed >= taken.trip / 2 && taken.trip < Duration::from_secs(1)
        );
        // Until it has no room.
        while socket.try_write(&[7; 50_000]).is_ok() {}
        let full = read(&socket).unwrap();
        assert!(full.unsent > 0 && full.flight > 0);
        drop(client);
    }

    #[tokio::test]
    async fn a_connection_that_has_ended_is_looked_at_until_it_is_delivered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let socket = Arc::new(listener.accept().await.unwrap().0);
        socket.writable().await.unwrap();
        while socket.try_write(&[7; 50_000]).is_ok() {}
        let (mut finding, clock) = (Finding::new(None), Clock::start());
        let now = clock.now();
        assert_eq!(finding.watch(now, &socket), Watch::Begins);
        assert_eq!(finding.watch(now, &socket), Watch::GoesOn);
        rustix::net::shutdown(&*socket, rustix::net::Shutdown::Write).unwrap();
        drop(socket);
        finding.look(&clock, 0, 0);
        assert!(finding.next().is_some());
        // To its end.
        tokio::io::copy(&mut client, &mut tokio::io::sink()).await.unwrap();
        while finding.next().is_some() {
            finding.look(&clock, 0, 0);
        }
        assert_eq!(finding.rate(), None);
    }
}
