//! An origin that works: a process of its own whose requests each take the processor time that they name.
//!
//! A thread for each connection, as many application servers have it, and the system's scheduler shares the
//! core among them. What a request takes is counted in the processor time of its thread, so that neither
//! what else runs nor how many others are there changes it: `?work=20000` is 20 ms of a processor.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

use crate::Error;
use crate::process::{self, free_port, spawn_pinned};

/// The most connections served at once; others wait to be accepted, as with any server that has a bound.
pub const CONNECTIONS_MAX: usize = 600;
/// A thread here needs next to nothing.
const STACK: usize = 64 * 1024;
/// Turns of the loop between two looks at the clock: a few microseconds.
const TURNS: u32 = 4_096;
/// How long it may take until its port accepts connections.
const START_BOUND: Duration = Duration::from_secs(20);
/// The longest line of a head.
const LINE_MAX: u64 = 8 * 1024;

/// A running origin. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Origin {
    child: Child,
    port: u16,
}

impl Origin {
    /// Starts this program again as an origin, on a processor.
    pub(crate) fn start(cpu: Option<usize>) -> Result<Self, Error> {
        let port = free_port()?;
        let own = std::env::current_exe().map_err(Error::io("finding this program"))?;
        let mut command = Command::new(own);
        command.arg("origin").arg("--port").arg(port.to_string());
        let child = spawn_pinned(command.stdin(Stdio::null()).stdout(Stdio::null()), cpu)?;
        let mut origin = Self { child, port };
        process::wait_until_ready(&mut origin.child, START_BOUND, || process::accepts(port)).map_err(
            |problem| Error::NotReady { server: "the origin".to_owned(), problem, log: String::new() },
        )?;
        Ok(origin)
    }

    /// Its port on 127.0.0.1.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// It stands still, as it is.
    pub(crate) fn stop(&self) {
        process::signal(&self.child, Signal::STOP);
    }

    /// It goes on.
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

/// Counts the connections.
#[derive(Debug, Default)]
struct Room {
    taken: Mutex<usize>,
    freed: Condvar,
}

impl Room {
    fn take(self: &Arc<Self>) -> Place {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken >= CONNECTIONS_MAX {
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

/// Serves on a port of 127.0.0.1 until the process ends.
///
/// # Errors
/// If it can't listen.
pub fn serve(port: u16) -> Result<(), Error> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(Error::io("listening"))?;
    let room = Arc::new(Room::default());
    for stream in listener.incoming() {
        let (Ok(stream), place) = (stream, room.take()) else { continue };
        let thread = std::thread::Builder::new().stack_size(STACK);
        // Without a thread the connection is closed.
        let _ = thread.spawn(move || {
            // A client that breaks off has ended.
            let _ = connection(&stream);
            drop(place);
        });
    }
    Ok(())
}

fn connection(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(4096, stream);
    let (mut line, mut answer) = (String::new(), String::new());
    loop {
        let mut work = None;
        loop {
            line.clear();
            if reader.by_ref().take(LINE_MAX).read_line(&mut line)? == 0 {
                return Ok(());
            }
            match line.trim_end() {
                "" if work.is_some() => break,
                "" => {}
                request if work.is_none() => work = Some(work_of(request)),
                _ => {}
            }
        }
        burn(work.unwrap_or_default());
        answer.clear();
        let body = "done\n";
        let _ = write!(answer, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        (&*stream).write_all(answer.as_bytes())?;
    }
}

/// What a request line asks for.
fn work_of(line: &str) -> Duration {
    let asked =
        line.split_once("?work=").map(|(_, rest)| rest.split(|letter: char| !letter.is_ascii_digit()));
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
        assert_eq!(work_of("GET /home?work=478 HTTP/1.1"), Duration::from_micros(478));
        assert_eq!(work_of("GET / HTTP/1.1"), Duration::ZERO);
    }
}
