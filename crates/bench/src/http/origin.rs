//! An origin that works: a process of its own whose requests each take the processor time that they name.
//!
//! A thread for each connection, as many application servers have it, and the system's scheduler shares the
//! core among them. What a request takes is counted in the processor time of its thread, so that neither
//! what else runs nor how many others are there changes it: `?work=20000` is 20 ms of a processor. Another
//! request blocks its thread without a processor: `?block=20000`. A path that is a number is the size of the
//! answer: `/5027` has 5,027 bytes.
//!
//! Two more keys block likewise, each with a limit of its own. `?place=40000` first waits for one of
//! `PLACES`, as in a server that has so many threads. `?lock=4000` holds the one lock. Where n requests want
//! it, more than `CALM`, each holds it (n / `CALM`)² times as long.
//!
//! With workers it is a site of several virtual hosts instead: a path such as `/c1` is the second worker's.
//! A worker is an origin of its own.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use testbed::process::{self, free_port, spawn_pinned};

use crate::Error;

/// The most connections served at once; others wait to be accepted, as with any server that has a bound.
pub const CONNECTIONS_MAX: usize = 600;
/// Requests that sleep in a place at once; others wait for one.
const PLACES: usize = 64;
/// The most requests that can want the lock without making each of them hold it longer.
const CALM: usize = 8;
/// A thread here needs next to nothing.
const STACK: usize = 64 * 1024;
/// Turns of the loop between two looks at the clock: a few microseconds.
const TURNS: u32 = 4_096;
/// How long it may take until its port accepts connections.
const START_BOUND: Duration = Duration::from_secs(20);
/// The environment variable that names this program, for tests.
const BINARY_VARIABLE: &str = "BENCH_BIN";
/// The longest line of a head.
const LINE_MAX: u64 = 8 * 1024;
/// Bytes of an answer that are written at once.
const PIECE: [u8; 16 * 1024] = [b'x'; 16 * 1024];
/// The largest answer.
const ANSWER_MAX: u64 = 1 << 30;

/// A running origin. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Origin {
    child: Child,
    port: u16,
}

impl Origin {
    /// Starts this program again as an origin of this machine, on a processor.
    pub(crate) fn start(cpu: Option<usize>) -> Result<Self, Error> {
        Self::start_on(Ipv4Addr::LOCALHOST, cpu)
    }

    /// Starts this program again as an origin on an address that includes 127.0.0.1, on a processor.
    pub(crate) fn start_on(address: Ipv4Addr, cpu: Option<usize>) -> Result<Self, Error> {
        Self::start_with(address, cpu, &[])
    }

    fn start_with(address: Ipv4Addr, cpu: Option<usize>, workers: &[u16]) -> Result<Self, Error> {
        let port = free_port()?;
        let mut command = Command::new(process::find_binary("bench", BINARY_VARIABLE)?);
        command.arg("origin").arg("--port").arg(port.to_string()).arg("--address").arg(address.to_string());
        for worker in workers {
            command.arg("--worker").arg(worker.to_string());
        }
        let child = spawn_pinned(command.stdin(Stdio::null()).stdout(Stdio::null()), cpu)?;
        let mut origin = Self { child, port };
        process::wait_until_ready(&mut origin.child, START_BOUND, || process::accepts(port)).map_err(
            |problem| testbed::Error::NotReady {
                server: "the origin".to_owned(),
                problem,
                log: String::new(),
            },
        )?;
        Ok(origin)
    }

    /// Starts this program again as a site whose requests these workers serve.
    pub(crate) fn start_before(workers: &[u16]) -> Result<Self, Error> {
        Self::start_with(Ipv4Addr::LOCALHOST, None, workers)
    }

    /// Its port on 127.0.0.1.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Stops the origin's process where it stands (SIGSTOP).
    pub(crate) fn stop(&self) {
        process::signal(&self.child, Signal::STOP);
    }

    /// Lets the origin's process go on (SIGCONT).
    pub(crate) fn go_on(&self) {
        process::signal(&self.child, Signal::CONT);
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // One that stands still can't end.
        self.go_on();
        process::end(&mut self.child, &[(Signal::TERM, Duration::from_secs(2))]);
    }
}

/// Places, each for one connection or request at a time.
#[derive(Debug)]
struct Room {
    most: usize,
    taken: Mutex<usize>,
    freed: Condvar,
}

impl Room {
    fn of(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default(), freed: Condvar::new() })
    }

    fn take(self: &Arc<Self>) -> Place {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken >= self.most {
            taken = self.freed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken += 1;
        Place(Arc::clone(self))
    }
}

struct Place(Arc<Room>);

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.freed.notify_one();
    }
}

/// What the connections of an origin share.
#[derive(Debug)]
struct Site {
    /// Ports of the workers that serve it, if it has workers.
    workers: Vec<u16>,
    places: Arc<Room>,
    lock: Mutex<()>,
    /// Requests that hold the lock, or wait for it.
    want: AtomicUsize,
}

impl Site {
    fn of(workers: &[u16]) -> Arc<Self> {
        let (lock, want) = (Mutex::default(), AtomicUsize::default());
        Arc::new(Self { workers: workers.to_vec(), places: Room::of(PLACES), lock, want })
    }

    /// Sleeps in a place.
    fn sleep(&self, time: Duration) {
        let place = self.places.take();
        std::thread::sleep(time);
        drop(place);
    }

    /// Holds the lock.
    fn hold(&self, time: Duration) {
        self.want.fetch_add(1, Ordering::Relaxed);
        let held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let crowd = self.want.load(Ordering::Relaxed).max(CALM) as f64 / CALM as f64;
        std::thread::sleep(time.mul_f64(crowd * crowd));
        self.want.fetch_sub(1, Ordering::Relaxed);
        drop(held);
    }
}

/// Serves on a port of an address until the process ends: itself, or by these workers.
///
/// # Errors
/// If it can't listen.
pub fn serve(address: Ipv4Addr, port: u16, workers: &[u16]) -> Result<(), Error> {
    let site = Site::of(workers);
    let listener = TcpListener::bind((address, port)).map_err(Error::io("listening"))?;
    let room = Room::of(CONNECTIONS_MAX);
    for stream in listener.incoming() {
        let (Ok(stream), place) = (stream, room.take()) else { continue };
        let thread = std::thread::Builder::new().stack_size(STACK);
        let site = Arc::clone(&site);
        // Without a thread the connection is closed.
        let _ = thread.spawn(move || {
            // A client that breaks off has ended.
            let _ = connection(&stream, &site);
            drop(place);
        });
    }
    Ok(())
}

fn connection(stream: &TcpStream, site: &Site) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(4096, stream);
    let (mut line, mut answer) = (String::new(), String::new());
    let mut relays = site.workers.iter().map(|&port| Relay { port, stream: None }).collect::<Vec<_>>();
    loop {
        let mut asked = None;
        loop {
            line.clear();
            if reader.by_ref().take(LINE_MAX).read_line(&mut line)? == 0 {
                return Ok(());
            }
            match line.trim_end() {
                "" if asked.is_some() => break,
                "" => {}
                request if asked.is_none() => {
                    let times = ["?work=", "?block=", "?place=", "?lock="].map(|key| time_of(request, key));
                    asked = Some((times, size_of(request)));
                    if let Some(relay) = worker_of(request).and_then(|place| relays.get_mut(place)) {
                        relay.ask(request)?;
                        asked = Some(Default::default());
                    }
                }
                _ => {}
            }
        }
        let ([work, block, place, lock], size) = asked.unwrap_or_default();
        burn(work);
        if !block.is_zero() {
            std::thread::sleep(block);
        }
        if !place.is_zero() {
            site.sleep(place);
        }
        if !lock.is_zero() {
            site.hold(lock);
        }
        answer.clear();
        let body = if size.is_some() { "" } else { "done\n" };
        let length = size.unwrap_or(body.len() as u64);
        let _ = write!(answer, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        write_answer(stream, answer.as_bytes(), size.unwrap_or(0))?;
    }
}

/// A connection to a worker, once there was a request for it.
struct Relay {
    port: u16,
    stream: Option<TcpStream>,
}

impl Relay {
    /// Has the worker do what a request line asks for, and waits for it.
    fn ask(&mut self, request: &str) -> io::Result<()> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
                stream.set_nodelay(true)?;
                none.insert(stream)
            }
        };
        stream.write_all(format!("{request}\r\nHost: worker\r\n\r\n").as_bytes())?;
        // All answers of a worker are alike.
        stream.read_exact(&mut [0; "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ndone\n".len()])
    }
}

/// The place of the worker that a request line names.
fn worker_of(line: &str) -> Option<usize> {
    let path = line.split([' ', '?']).nth(1)?;
    path.strip_prefix("/c")?.parse().ok()
}

/// Writes a head, and so many bytes behind it.
fn write_answer(mut stream: &TcpStream, head: &[u8], mut left: u64) -> io::Result<()> {
    let mut head = head;
    while left > 0 || !head.is_empty() {
        let piece = &PIECE[..left.min(PIECE.len() as u64) as usize];
        let mut written = stream.write_vectored(&[IoSlice::new(head), IoSlice::new(piece)])?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let of_head = written.min(head.len());
        head = &head[of_head..];
        written -= of_head;
        left -= written as u64;
    }
    Ok(())
}

/// The size that a request line asks for.
fn size_of(line: &str) -> Option<u64> {
    let path = line.split(' ').nth(1)?.strip_prefix('/')?;
    path.parse().ok().filter(|&size| size <= ANSWER_MAX)
}

/// How long a request line asks for by this key.
fn time_of(line: &str, key: &str) -> Duration {
    let asked = line.split_once(key).map(|(_, rest)| rest.split(|letter: char| !letter.is_ascii_digit()));
    let micros = asked.and_then(|mut parts| parts.next()?.parse().ok()).unwrap_or(0);
    Duration::from_micros(micros)
}

/// Takes so much of the processor's time, however long that lasts.
fn burn(work: Duration) {
    let used = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::from_secs(now.tv_sec.unsigned_abs()) + Duration::from_nanos(now.tv_nsec.unsigned_abs())
    };
    let end = used() + work;
    let mut value = 1_u64;
    while used() < end {
        for _ in 0..TURNS {
            value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_line_says_what_it_takes() {
        assert_eq!(time_of("GET /home?work=478 HTTP/1.1", "?work="), Duration::from_micros(478));
        assert_eq!(time_of("GET /home?work=478 HTTP/1.1", "?block="), Duration::ZERO);
        assert_eq!(time_of("GET / HTTP/1.1", "?work="), Duration::ZERO);
        assert_eq!(size_of("GET /5027 HTTP/1.1"), Some(5_027));
        assert_eq!(size_of("GET /home?work=478 HTTP/1.1"), None);
        assert_eq!(size_of("GET /99999999999 HTTP/1.1"), None);
    }

    #[test]
    fn a_lock_is_held_longer_where_more_than_a_few_want_it() {
        let (site, millis) = (Site::of(&[]), Duration::from_millis);
        let took = |others| {
            site.want.store(others, Ordering::Relaxed);
            let begun = std::time::Instant::now();
            site.hold(millis(4));
            begun.elapsed()
        };
        assert!(took(0) >= millis(4));
        assert!(took(23) >= millis(36));
        assert_eq!(site.want.load(Ordering::Relaxed), 23);
    }

    #[test]
    fn a_path_that_names_a_worker_is_the_workers() {
        let accept = |listener: &TcpListener| listener.accept().unwrap().0;
        let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (front, worker) = (listen(), listen());
        let (site, port) = (front.local_addr().unwrap(), worker.local_addr().unwrap().port());
        let behind = std::thread::spawn(move || {
            let mut line = String::new();
            let stream = accept(&worker);
            BufReader::new(&stream).read_line(&mut line).unwrap();
            write_answer(&stream, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ndone\n", 0).unwrap();
            line
        });
        // The first worker doesn't exist, and isn't asked.
        let before = std::thread::spawn(move || connection(&accept(&front), &Site::of(&[1, port])));
        let mut client = TcpStream::connect(site).unwrap();
        client.write_all(b"GET /c1?work=3000 HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut answer = [0; 43];
        client.read_exact(&mut answer).unwrap();
        assert!(answer.ends_with(b"done\n"), "{answer:?}");
        assert_eq!(behind.join().unwrap().trim_end(), "GET /c1?work=3000 HTTP/1.1");
        drop(client);
        before.join().unwrap().unwrap();
    }

    #[test]
    fn a_size_is_answered_with_so_many_bytes() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || connection(&listener.accept().unwrap().0, &Site::of(&[])));
        let mut stream = TcpStream::connect(address).unwrap();
        for size in [0, 1, 5_027, 300_000] {
            write!(stream, "GET /{size} HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
            let mut answer = vec![0; head.len() + size];
            stream.read_exact(&mut answer).unwrap();
            assert!(answer.starts_with(head.as_bytes()));
            assert!(answer[head.len()..].iter().all(|&byte| byte == b'x'));
        }
        drop(stream);
        server.join().unwrap().unwrap();
    }
}
