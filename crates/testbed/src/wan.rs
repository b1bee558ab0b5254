//! A wide-area network between two network namespaces: a forwarder that delays and loses packets, for kernels
//! without `netem`.
//!
//! Each namespace has a TUN device. A thread takes what one device sends and gives it to the other after a
//! fixed time. Each packet is lost with the same probability, whatever becomes of others: which ones, in the
//! order in which a device sends them, follows from the seed alone. Packets keep their order.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::oneshot;
use tokio_tun::Tun;

use crate::Error;
use crate::namespace::Namespace;
use crate::pacer::Pacer;

/// Most packets on their way in one direction; others are dropped.
const ON_THE_WAY_MAX: usize = 4_096;
/// The longest packet.
const PACKET_MAX: usize = 1_500;

/// What a wide-area network is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wan {
    /// How long a packet is on its way, in each direction.
    pub delay: Duration,
    /// The part of packets that is lost in each direction, in percent.
    pub loss: u8,
    /// Which ones are lost.
    pub seed: u64,
}

/// Packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Those that a device has sent.
    pub sent: u64,
    /// Sent packets that were lost.
    pub lost: u64,
    /// Those for which there was no room.
    pub overflowed: u64,
    /// Those that the other device has got.
    pub delivered: u64,
}

#[derive(Debug, Default)]
struct Counters {
    sent: AtomicU64,
    lost: AtomicU64,
    overflowed: AtomicU64,
    delivered: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// One direction.
#[derive(Debug)]
struct Line {
    wan: Wan,
    random: StdRng,
    on_the_way: VecDeque<(Instant, Vec<u8>)>,
    counters: Arc<Counters>,
}

impl Line {
    fn new(wan: Wan, direction: u64, counters: Arc<Counters>) -> Self {
        let random = StdRng::seed_from_u64(wan.seed.wrapping_mul(2).wrapping_add(direction));
        Self { wan, random, on_the_way: VecDeque::new(), counters }
    }

    /// A device has sent a packet.
    fn take(&mut self, now: Instant, packet: &[u8]) {
        count(&self.counters.sent);
        // Each packet takes one number, so that the next one's fate is its own.
        if self.random.random::<f64>() * 100.0 < f64::from(self.wan.loss) {
            count(&self.counters.lost);
        } else if self.on_the_way.len() >= ON_THE_WAY_MAX {
            count(&self.counters.overflowed);
        } else {
            self.on_the_way.push_back((now + self.wan.delay, packet.to_vec()));
        }
    }

    /// When the next packet arrives.
    fn next(&self) -> Option<Instant> {
        self.on_the_way.front().map(|&(at, _)| at)
    }

    /// A packet that has arrived by now.
    fn arrived(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.next().filter(|&at| at <= now)?;
        self.on_the_way.pop_front().map(|(_, packet)| packet)
    }

    /// Forwards what one device sends to the other, without end.
    async fn forward(&mut self, from: &Tun, to: &Tun) -> io::Result<()> {
        let pacer = Pacer::new()?;
        let mut packet = [0; PACKET_MAX];
        loop {
            let next = self.next();
            let wait = async {
                match next {
                    Some(next) => pacer.until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                length = from.recv(&mut packet) => self.take(Instant::now(), &packet[..length?]),
                waited = wait => waited?,
            }
            while let Some(packet) = self.arrived(Instant::now()) {
                to.send(&packet).await?;
                count(&self.counters.delivered);
            }
        }
    }
}

/// A running forwarder. Dropping it removes its devices.
#[derive(Debug)]
pub struct Emulator {
    counters: [Arc<Counters>; 2],
    /// Dropped: the thread ends.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Emulator {
    /// Makes a device of this name in each namespace, and forwards between them. Blocks until they are there.
    ///
    /// # Errors
    /// If the kernel has no TUN devices, or refuses one.
    pub fn start(wan: Wan, sides: [(Namespace, &'static str); 2]) -> Result<Self, Error> {
        let counters: [Arc<Counters>; 2] = Default::default();
        let lines = [0, 1].map(|at| Line::new(wan, at as u64, Arc::clone(&counters[at])));
        let (stop, stopped) = oneshot::channel();
        let (say, made) = mpsc::channel();
        let work = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(say.send(Err(Error::io("starting a runtime")(error)))),
            };
            runtime.block_on(async {
                let devices = sides.map(|(namespace, name)| device(&namespace, name));
                match devices {
                    [Ok(one), Ok(other)] => {
                        let _ = say.send(Ok(()));
                        run(lines, [one, other], stopped).await;
                    }
                    [Err(error), _] | [_, Err(error)] => drop(say.send(Err(error))),
                }
            });
        };
        let thread = std::thread::Builder::new().name("wan".to_owned()).spawn(work);
        let thread = thread.map_err(Error::io("starting a forwarder"))?;
        made.recv().map_err(|_| Error::Unusable("the forwarder ended".to_owned()))??;
        Ok(Self { counters, stop: Some(stop), thread: Some(thread) })
    }

    /// The packets from the first side to the second, and back.
    pub fn passed(&self) -> [Passed; 2] {
        self.counters.each_ref().map(|counters| {
            let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            Passed {
                sent: read(&counters.sent),
                lost: read(&counters.lost),
                overflowed: read(&counters.overflowed),
                delivered: read(&counters.delivered),
            }
        })
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A TUN device in a namespace, which the calling thread enters.
fn device(namespace: &Namespace, name: &str) -> Result<Tun, Error> {
    namespace.enter()?;
    let made = Tun::builder().name(name).build().map_err(|error| {
        Error::Unusable(format!("making a TUN device: {error} (is there /dev/net/tun, and are you root?)"))
    });
    made?.pop().ok_or_else(|| Error::Unusable("the kernel made no TUN device".to_owned()))
}

/// Forwards in both directions until it is told to stop, or a device is gone.
async fn run([mut down, mut up]: [Line; 2], [one, other]: [Tun; 2], stopped: oneshot::Receiver<()>) {
    tokio::select! {
        _ = stopped => {}
        _ = down.forward(&one, &other) => {}
        _ = up.forward(&other, &one) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::thread;

    use super::*;
    use crate::link::{Link, Properties, SERVER};

    fn fates(wan: Wan, direction: u64, packets: usize) -> Vec<bool> {
        let mut line = Line::new(wan, direction, Arc::default());
        let now = Instant::now();
        let is_kept = |_| {
            line.take(now, b"packet");
            line.arrived(now + wan.delay).is_some()
        };
        (0..packets).map(is_kept).collect()
    }

    #[test]
    fn a_seed_says_which_packets_are_lost() {
        let wan = |loss, seed| Wan { delay: Duration::ZERO, loss, seed };
        let lost = |wan, direction| fates(wan, direction, 10_000).iter().filter(|kept| !**kept).count();
        assert_eq!(fates(wan(5, 7), 0, 10_000), fates(wan(5, 7), 0, 10_000));
        assert_ne!(fates(wan(5, 7), 0, 10_000), fates(wan(5, 8), 0, 10_000));
        assert_ne!(fates(wan(5, 7), 0, 10_000), fates(wan(5, 7), 1, 10_000));
        assert_eq!((lost(wan(0, 7), 0), lost(wan(100, 7), 1)), (0, 10_000));
        assert!((400..600).contains(&lost(wan(5, 7), 0)));
    }

    #[test]
    fn a_packet_arrives_when_its_time_is_over_behind_those_before_it() {
        let counters = Arc::new(Counters::default());
        let wan = Wan { delay: Duration::from_millis(50), loss: 0, seed: 1 };
        let (mut line, start) = (Line::new(wan, 0, Arc::clone(&counters)), Instant::now());
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        line.take(at(0), b"one");
        line.take(at(10), b"two");
        assert_eq!((line.next(), line.arrived(at(49))), (Some(at(50)), None));
        assert_eq!(line.arrived(at(60)).as_deref(), Some(&b"one"[..]));
        assert_eq!((line.arrived(at(60)).as_deref(), line.next()), (Some(&b"two"[..]), None));
        for _ in 0..=ON_THE_WAY_MAX {
            line.take(at(100), b"many");
        }
        assert_eq!(line.on_the_way.len(), ON_THE_WAY_MAX);
        assert_eq!(counters.overflowed.load(Ordering::Relaxed), 1);
    }

    /// A fast link over such a network; `None`: only root can have one.
    fn link(wan: Wan) -> Option<Link> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can make network namespaces");
            return None;
        }
        let wan = Some(wan);
        Some(Link::new(Properties { bits: 100_000_000, queue: 1_000, segment: 1_460, wan }).unwrap())
    }

    #[test]
    fn a_round_trip_takes_both_ways() {
        let delay = Duration::from_millis(40);
        let Some(link) = link(Wan { delay, loss: 0, seed: 1 }) else { return };
        let listener = link.server().inside(|| Ok(TcpListener::bind((SERVER, 0)).unwrap())).unwrap();
        let address = listener.local_addr().unwrap();
        let echo = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            stream.write_all(&byte).unwrap();
        });
        let began = Instant::now();
        let mut client = link.clients().inside(|| Ok(TcpStream::connect(address).unwrap())).unwrap();
        assert!(began.elapsed() >= 2 * delay, "a handshake took {:?}", began.elapsed());
        let began = Instant::now();
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
        assert!(began.elapsed() >= 2 * delay, "an answer took {:?}", began.elapsed());
        echo.join().unwrap();
    }

    #[test]
    fn every_packet_is_delivered_or_counted_as_lost() {
        const PACKETS: u64 = 200;
        let wan = Wan { delay: Duration::from_millis(5), loss: 30, seed: 3 };
        let Some(link) = link(wan) else { return };
        let bind = || Ok(UdpSocket::bind(("0.0.0.0", 0)).unwrap());
        let (server, client) = (link.server().inside(bind).unwrap(), link.clients().inside(bind).unwrap());
        let to = (crate::link::CLIENTS, client.local_addr().unwrap().port());
        for _ in 0..PACKETS {
            server.send_to(b"x", to).unwrap();
        }
        let passed = || link.passed().unwrap()[0];
        while passed().sent < PACKETS || passed().delivered + passed().lost < passed().sent {
            thread::yield_now();
        }
        let Passed { sent, lost, overflowed, delivered } = passed();
        let kept = fates(wan, 0, sent as usize).iter().filter(|kept| **kept).count() as u64;
        assert_eq!((lost, overflowed, delivered), (sent - kept, 0, kept));
        // Nothing but the datagrams is sent to the client.
        assert_eq!(sent, PACKETS);
        client.set_nonblocking(true).unwrap();
        let mut received = 0;
        while received < delivered {
            match client.recv(&mut [0; 8]) {
                Ok(_) => received += 1,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert!(client.recv(&mut [0; 8]).is_err(), "no more arrive than were delivered");
    }

    #[test]
    fn a_connection_over_a_network_that_loses_packets_brings_all_bytes() {
        let wan = Wan { delay: Duration::from_millis(2), loss: 5, seed: 5 };
        let Some(link) = link(wan) else { return };
        let listener = link.server().inside(|| Ok(TcpListener::bind((SERVER, 0)).unwrap())).unwrap();
        let address = listener.local_addr().unwrap();
        let sender = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&vec![b'x'; 300_000]).unwrap();
        });
        let mut client = link.clients().inside(|| Ok(TcpStream::connect(address).unwrap())).unwrap();
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).unwrap();
        sender.join().unwrap();
        let [down, up] = link.passed().unwrap();
        assert!(bytes.len() == 300_000 && down.lost > 0 && up.sent > 0, "{down:?} {up:?}");
    }
}
