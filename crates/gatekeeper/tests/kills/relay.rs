//! A wire between the gate and its server that can be cut after any byte.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

/// Whose bytes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToServer,
    ToGate,
}

/// What is to be cut, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// How many more bytes pass before the cut, of all connections together.
    pub(crate) after: usize,
    /// The direction in which the bytes are counted.
    pub(crate) direction: Direction,
    /// Both ends hear a reset instead of an end.
    pub(crate) resets: bool,
    /// All connections, not only the one that had the last of the bytes.
    pub(crate) all: bool,
}

#[derive(Default)]
struct State {
    cut: Option<Cut>,
    /// Both ends of each connection that isn't cut, by its number.
    wires: BTreeMap<u64, (TcpStream, TcpStream)>,
    next: u64,
}

/// Relays between a port of its own and a server's.
pub(crate) struct Relay {
    pub(crate) port: u16,
    state: Arc<Mutex<State>>,
}

impl Relay {
    /// For as long as the process lives: nobody connects any more once the gate has ended.
    pub(crate) fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("it has an address").port();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for gate in listener.incoming().flatten() {
                // A server that is away refuses; so does this.
                if let Ok(server) = TcpStream::connect(("127.0.0.1", server)) {
                    connect(&shared, &gate, &server);
                }
            }
        });
        Self { port, state }
    }

    /// Cuts as soon as it is due.
    pub(crate) fn cut(&self, cut: Cut) {
        lock(&self.state).cut = Some(cut);
    }

    /// Whether the cut has been made.
    pub(crate) fn has_cut(&self) -> bool {
        lock(&self.state).cut.is_none()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(state: &Arc<Mutex<State>>, gate: &TcpStream, server: &TcpStream) {
    let again = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
    gate.set_nodelay(true).expect("small writes go at once");
    server.set_nodelay(true).expect("small writes go at once");
    let number = {
        let mut state = lock(state);
        state.next += 1;
        let number = state.next;
        state.wires.insert(number, (again(gate), again(server)));
        number
    };
    for (from, to, direction) in
        [(again(gate), again(server), Direction::ToServer), (again(server), again(gate), Direction::ToGate)]
    {
        let state = Arc::clone(state);
        std::thread::spawn(move || pump(&state, number, from, to, direction));
    }
}

fn pump(state: &Mutex<State>, number: u64, mut from: TcpStream, mut to: TcpStream, direction: Direction) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let mut passing = count;
        {
            let mut state = lock(state);
            if let Some(cut) = state.cut.as_mut().filter(|cut| cut.direction == direction) {
                passing = cut.after.min(count);
                cut.after -= passing;
            }
            if passing < count {
                let _ = to.write_all(&buffer[..passing]);
                state.sever(number);
                return;
            }
        }
        if to.write_all(&buffer[..passing]).is_err() {
            break;
        }
    }
    let mut state = lock(state);
    if state.wires.contains_key(&number) {
        let _ = to.shutdown(Shutdown::Write);
        if direction == Direction::ToServer {
            state.wires.remove(&number);
        }
    }
}

impl State {
    /// Makes the cut that is due, at this connection.
    fn sever(&mut self, number: u64) {
        let Some(cut) = self.cut.take() else { return };
        let mut severed = BTreeMap::new();
        if cut.all {
            std::mem::swap(&mut severed, &mut self.wires);
        } else {
            severed.extend(self.wires.remove_entry(&number));
        }
        for stream in severed.into_values().flat_map(|(gate, server)| [gate, server]) {
            if cut.resets {
                // The reset goes out with the last descriptor; a thread that reads now lets go of its own.
                let _ = set_socket_linger(&stream, Some(Duration::ZERO));
                let _ = stream.shutdown(Shutdown::Read);
            } else {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}
