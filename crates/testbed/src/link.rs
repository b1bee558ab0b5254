//! A link between a server and its clients: two network namespaces of our own, a token bucket that sends at
//! the link's rate, and perhaps a [`Wan`] behind it.
//!
//! The kernel removes namespaces, devices and queues when a [`Link`] is dropped, and also when this process
//! is killed.

use std::fs;
use std::net::Ipv4Addr;

use crate::Error;
use crate::namespace::Keeper;
pub use crate::namespace::Namespace;
use crate::wan::{Emulator, Passed, Wan};

/// The server's address.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The clients' address.
pub const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
/// The network of both.
const NETWORK: &str = "10.99.0.0/24";
/// The server's device.
pub const UPLINK: &str = "uplink";
/// The clients' device.
const DOWNLINK: &str = "clients";
/// What Ethernet adds to each packet that the kernel doesn't count: preamble, checksum and gap.
const OVERHEAD: u64 = 24;
/// The head of an Ethernet frame, which packets of a TUN device don't have.
const FRAME: u64 = 14;
/// Packets that a TUN device keeps for a forwarder that is late.
const LATE_MAX: u32 = 1_000;
/// Bytes that the token bucket lets out at once: one packet.
const BURST: &str = "1600";
/// Bytes that the token bucket has room for; the queue inside it is bounded by packets.
const ROOM: &str = "100000000";
/// Bytes of TCP and IP headers in a packet, beside the segment.
const HEADERS: u32 = 40;

/// What a link is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Bits per second from the server to its clients.
    pub bits: u64,
    /// Packets in each band of the kernel's queue (`pfifo_fast`).
    pub queue: u32,
    /// Most bytes of data in a packet, with the options of TCP.
    pub segment: u32,
    /// What is behind the link, if it isn't a cable.
    pub wan: Option<Wan>,
}

/// The sockets of a port, and what the link has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Connections that are open, and those whose last bytes are under way.
    pub connections: usize,
    /// Half-open connections.
    pub half_open: usize,
    /// Connections and half-open ones that found their queue full since the link began.
    pub refused: u64,
    /// Bytes that were sent since the link began, without preamble, checksum and gap.
    pub sent: u64,
}

/// A link. Dropping it removes it, once the processes inside have ended.
#[derive(Debug)]
pub struct Link {
    emulator: Option<Emulator>,
    server: Keeper,
    clients: Keeper,
}

impl Link {
    /// Makes a link.
    ///
    /// # Errors
    /// If this process isn't root, or a program or a part of the kernel is missing.
    pub fn new(properties: Properties) -> Result<Self, Error> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::Unusable(
                "a link needs network namespaces of its own, which only root may make; run this as root"
                    .to_owned(),
            ));
        }
        let (server, clients) = (Keeper::start()?, Keeper::start()?);
        let emulator = devices(&server, &clients, properties.wan)?;
        let link = Self { emulator, server, clients };
        link.set_up(properties)?;
        Ok(link)
    }

    fn set_up(&self, properties: Properties) -> Result<(), Error> {
        let Properties { bits, queue, segment, .. } = properties;
        let mtu = segment + HEADERS;
        let (server, clients) = (self.server(), self.clients());
        for (namespace, device, address) in [(server, UPLINK, SERVER), (clients, DOWNLINK, CLIENTS)] {
            let run = |arguments: &str| namespace.run("ip", arguments).map(drop);
            run("link set lo up")?;
            run(&format!("addr add {address}/24 dev {device}"))?;
            // A browser breaks off what it loads when an address appears, as IPv6 has it a second later.
            run(&format!("link set {device} addrgenmode none"))?;
            // Each packet is one, as on a wire, and not many of them in one buffer.
            run(&format!("link set {device} txqueuelen {queue} gso_max_segs 1 up"))?;
        }
        needs("tbf", server.run("tc", &self.token_bucket("add", bits)).map(drop))?;
        server.run("tc", &format!("qdisc add dev {UPLINK} parent 1: handle 2: pfifo_fast"))?;
        if self.emulator.is_some() {
            // The queue above keeps its length.
            server.run("ip", &format!("link set {UPLINK} txqueuelen {LATE_MAX}"))?;
            clients.run("ip", &format!("link set {DOWNLINK} txqueuelen {LATE_MAX}"))?;
        }
        // Clients tell the server which segments they take.
        clients.run(
            "ip",
            &format!(
                "route change {NETWORK} dev {DOWNLINK} proto kernel scope link src {CLIENTS} advmss {segment} mtu lock {mtu}"
            ),
        )?;
        // Linux's own choice, whatever the host's is.
        server.run(
            "ip",
            &format!(
                "route change {NETWORK} dev {UPLINK} proto kernel scope link src {SERVER} congctl cubic"
            ),
        )?;
        clients.inside(widen_ports)
    }

    /// Arguments of `tc` that add or change the link's rate.
    fn token_bucket(&self, verb: &str, bits: u64) -> String {
        let overhead = self.overhead();
        format!(
            "qdisc {verb} dev {UPLINK} root handle 1: tbf rate {bits}bit burst {BURST} limit {ROOM} overhead {overhead}"
        )
    }

    /// Replaces the queues of the server's device by what these commands of `tc` make, which count the same
    /// bytes of Ethernet beside each packet.
    ///
    /// # Errors
    /// If `tc` can't.
    pub fn replace_queues(&self, commands: &str) -> Result<(), Error> {
        self.server().run("tc", &format!("qdisc delete dev {UPLINK} root"))?;
        for command in commands.lines() {
            let arguments = command.strip_prefix("tc ").unwrap_or(command);
            let counted = if arguments.contains(" rate ") {
                format!(" overhead {}", self.overhead())
            } else {
                String::new()
            };
            self.server().run("tc", &format!("{arguments}{counted}"))?;
        }
        Ok(())
    }

    /// Bytes of a packet on the wire that the device doesn't count.
    fn overhead(&self) -> u64 {
        OVERHEAD + if self.emulator.is_some() { FRAME } else { 0 }
    }

    /// The packets that went from the server to its clients and back, if there is a [`Wan`].
    pub fn passed(&self) -> Option<[Passed; 2]> {
        self.emulator.as_ref().map(Emulator::passed)
    }

    /// Changes the link's rate, in bits per second.
    ///
    /// # Errors
    /// If `tc` can't.
    pub fn set_rate(&self, bits: u64) -> Result<(), Error> {
        self.server.namespace().run("tc", &self.token_bucket("change", bits)).map(drop)
    }

    /// Where servers are.
    pub const fn server(&self) -> &Namespace {
        self.server.namespace()
    }

    /// Where clients are.
    pub const fn clients(&self) -> &Namespace {
        self.clients.namespace()
    }

    /// The state of the link and of the server's sockets at a port.
    ///
    /// # Errors
    /// If the kernel doesn't tell.
    pub fn state(&self, port: u16) -> Result<State, Error> {
        let mut state = State::default();
        for table in [self.server.read("tcp")?, self.server.read("tcp6").unwrap_or_default()] {
            let (open, half_open) = sockets(&table, port);
            state.connections += open;
            state.half_open += half_open;
        }
        state.refused = counter(&self.server.read("netstat")?, "TcpExt:", "ListenDrops");
        let (bytes, packets) = sent(&self.server.read("dev")?);
        state.sent = bytes + if self.emulator.is_some() { packets * FRAME } else { 0 };
        Ok(state)
    }

    /// How often an opening of a connection, or an answer to one, was sent again by the server's side.
    ///
    /// # Errors
    /// If the kernel doesn't tell.
    pub fn openings_again(&self) -> Result<u64, Error> {
        Ok(counter(&self.server.read("netstat")?, "TcpExt:", "TCPSynRetrans"))
    }

    /// Packets that found the queue of the kernel full.
    ///
    /// # Errors
    /// If `tc` doesn't tell.
    pub fn dropped(&self) -> Result<u64, Error> {
        let told = self.server.namespace().run("tc", &format!("-s -j qdisc show dev {UPLINK}"))?;
        let queues: Vec<serde_json::Value> = serde_json::from_str(&told)
            .map_err(|error| Error::Unusable(format!("tc says what is no JSON: {error}")))?;
        Ok(queues.iter().filter_map(|queue| queue.get("drops")?.as_u64()).max().unwrap_or(0))
    }
}

/// The devices of both sides: the ends of a cable, or of a network.
fn devices(server: &Keeper, clients: &Keeper, wan: Option<Wan>) -> Result<Option<Emulator>, Error> {
    if let Some(wan) = wan {
        let sides = [(server.namespace().clone(), UPLINK), (clients.namespace().clone(), DOWNLINK)];
        return Emulator::start(wan, sides).map(Some);
    }
    let peer = clients.process();
    let pair = format!("link add {UPLINK} type veth peer name {DOWNLINK} netns {peer}");
    needs("veth", server.namespace().run("ip", &pair).map(drop))?;
    Ok(None)
}

/// Says which part of the kernel a command needs that failed.
fn needs(part: &str, done: Result<(), Error>) -> Result<(), Error> {
    done.map_err(|error| match error {
        Error::Program { program, output } => {
            let output = format!("{output} (does this kernel have `{part}`?)");
            Error::Program { program, output }
        }
        other => other,
    })
}

/// Lets clients have all ports: a closed connection keeps its own for a minute.
fn widen_ports() -> Result<(), Error> {
    // The file belongs to the namespace of the process that opens it.
    let path = "/proc/sys/net/ipv4/ip_local_port_range";
    fs::write(path, "1024 65535").map_err(Error::io(format!("writing to {path}")))
}

/// The open and the half-open connections at a local port.
fn sockets(table: &str, port: u16) -> (usize, usize) {
    let ending = format!(":{port:04X}");
    let mut found = (0, 0);
    for line in table.lines().skip(1) {
        let mut columns = line.split_whitespace().skip(1);
        if !columns.next().is_some_and(|local| local.ends_with(&ending)) {
            continue;
        }
        match columns.nth(1) {
            // Established, FIN-WAIT-1, CLOSE-WAIT, LAST-ACK.
            Some("01" | "04" | "08" | "09") => found.0 += 1,
            // SYN-RECV.
            Some("03") => found.1 += 1,
            _ => {}
        }
    }
    found
}

/// A counter in a file of two lines each: names and values.
fn counter(text: &str, protocol: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with(protocol));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|pair| pair.0 == name).and_then(|pair| pair.1.parse().ok()).unwrap_or(0)
}

/// Bytes and packets that the server's device has sent.
fn sent(devices: &str) -> (u64, u64) {
    let of_it = |line: &str| line.trim_start().strip_prefix(UPLINK)?.strip_prefix(':').map(str::to_owned);
    let Some(columns) = devices.lines().find_map(of_it) else { return (0, 0) };
    let mut columns = columns.split_whitespace().skip(8).map_while(|column| column.parse().ok());
    (columns.next().unwrap_or(0), columns.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    #[test]
    fn sockets_are_counted_by_port_and_state() {
        let table = "  sl  local_address rem_address   st\n\
             0: 0100630A:1F90 0200630A:C001 01 00000000\n\
             1: 0100630A:1F90 0200630A:C002 03 00000000\n\
             2: 0100630A:1F90 0200630A:C003 06 00000000\n\
             3: 0100630A:0050 0200630A:C004 01 00000000\n\
             4: 0100630A:1F90 00000000:0000 0A 00000000\n";
        assert_eq!(sockets(table, 8_080), (1, 1));
        assert_eq!(sockets(table, 80), (1, 0));
    }

    #[test]
    fn counters_are_found_by_name() {
        let text = "TcpExt: SyncookiesSent ListenDrops\nTcpExt: 3 17\nIpExt: ListenDrops\nIpExt: 1\n";
        assert_eq!(counter(text, "TcpExt:", "ListenDrops"), 17);
        assert_eq!(counter(text, "TcpExt:", "Nothing"), 0);
        let devices = "Inter-|   Receive\n    lo: 1 1 0 0 0 0 0 0 2 2\nuplink: 10 9 8 7 6 5 4 3 4711 2 0\n";
        assert_eq!(sent(devices), (4_711, 2));
    }

    #[test]
    fn what_passes_a_link_is_counted_and_a_dropped_one_is_gone() {
        if !rustix::process::geteuid().is_root() {
            let error = Link::new(Properties { bits: 1, queue: 1, segment: 1_460, wan: None })
                .unwrap_err()
                .to_string();
            assert!(error.contains("run this as root"), "{error}");
            return;
        }
        // The queue has room for all packets at once, so that none is dropped.
        let link = Link::new(Properties { bits: 100_000_000, queue: 300, segment: 536, wan: None }).unwrap();
        let listener = link.server().inside(|| Ok(TcpListener::bind((SERVER, 0)).unwrap())).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = link.clients().inside(|| Ok(TcpStream::connect((SERVER, port)).unwrap())).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let bytes = vec![b'x'; 100_000];
        let reader = thread::spawn(move || {
            let mut read = Vec::new();
            (&client).take(100_000).read_to_end(&mut read).unwrap();
            (client, read.len())
        });
        server.write_all(&bytes).unwrap();
        let (client, read) = reader.join().unwrap();
        let state = link.state(port).unwrap();
        assert_eq!((read, state.connections, state.half_open), (100_000, 1, 0));
        // Packets of 536 bytes at most have at least 66 bytes of headers for 524 of data.
        assert!(state.sent > 112_000, "{state:?}");
        assert_eq!((link.state(port ^ 1).unwrap().connections, link.dropped().unwrap()), (0, 0));
        let keepers = [link.server.process(), link.clients.process()];
        drop((client, server, listener, link));
        for keeper in keepers {
            assert!(!fs::exists(format!("/proc/{keeper}/ns/net")).unwrap());
        }
    }

    #[test]
    fn an_error_names_the_part_of_the_kernel() {
        let failed = Error::Program { program: "tc".to_owned(), output: "Unknown qdisc".to_owned() };
        let text = needs("tbf", Err(failed)).unwrap_err().to_string();
        assert!(text.contains("Unknown qdisc (does this kernel have `tbf`?)"), "{text}");
    }
}
