//! A link between a server and its clients: two network namespaces of our own, and a token bucket that sends
//! at the link's rate.
//!
//! A namespace lives as long as a process inside it, which ends when its standard input does. So the kernel
//! removes namespaces, devices and queues when a [`Link`] is dropped, and also when this process is killed.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::Error;

/// The server's address.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The clients' address.
const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
/// The network of both.
const NETWORK: &str = "10.99.0.0/24";
/// The server's device.
const UPLINK: &str = "uplink";
/// What Ethernet adds to each packet that the kernel doesn't count: preamble, checksum and gap.
const OVERHEAD: &str = "24";
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
}

/// A network namespace.
#[derive(Clone, Debug)]
pub struct Namespace {
    file: Arc<File>,
}

impl Namespace {
    /// Moves this thread, and whatever it starts later, into the namespace.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn enter(&self) -> Result<(), Error> {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| Error::io("entering a network namespace")(errno.into()))
    }

    /// Does something on a thread inside the namespace. Processes that it starts are inside as well.
    ///
    /// # Errors
    /// As the work, or if the system refuses.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter()?;
                work()
            });
            thread.join().map_err(|_| Error::Experiment("a thread inside a namespace ended".to_owned()))?
        })
    }

    /// Runs a program inside, and returns what it printed.
    fn run(&self, program: &str, arguments: &str) -> Result<String, Error> {
        self.inside(|| {
            let output = Command::new(program).args(arguments.split(' ')).stdin(Stdio::null()).output();
            let output = output.map_err(|error| missing(program, error))?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(Error::Program { program: format!("{program} {arguments}"), output: said });
            }
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        })
    }
}

/// A process that keeps a namespace alive.
#[derive(Debug)]
struct Keeper {
    child: Child,
    namespace: Namespace,
}

impl Keeper {
    fn start() -> Result<Self, Error> {
        let mut command = Command::new("unshare");
        command.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| missing("unshare", error))?;
        // What comes back was passed on by a process that is inside.
        let mut echo = String::new();
        if let (Some(input), Some(output)) = (&mut child.stdin, &mut child.stdout) {
            let _ = input.write_all(b"inside\n");
            let _ = BufReader::new(output).read_line(&mut echo);
        }
        if echo != "inside\n" {
            let output = child.wait_with_output().map_err(Error::io("waiting for unshare"))?;
            let output = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Error::Program { program: "unshare --net".to_owned(), output });
        }
        let path = format!("/proc/{}/ns/net", child.id());
        let file = File::open(&path).map_err(Error::io(format!("opening {path}")));
        match file {
            Ok(file) => Ok(Self { child, namespace: Namespace { file: Arc::new(file) } }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// A file of `/proc/net` as the namespace has it.
    fn read(&self, name: &str) -> Result<String, Error> {
        let path = format!("/proc/{}/net/{name}", self.child.id());
        fs::read_to_string(&path).map_err(Error::io(format!("reading {path}")))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
            return Err(Error::Experiment(
                "a link needs network namespaces of its own, which only root may make; run this as root"
                    .to_owned(),
            ));
        }
        let (server, clients) = (Keeper::start()?, Keeper::start()?);
        let Properties { bits, queue, segment } = properties;
        let mtu = segment + HEADERS;
        let at_server = |program: &str, arguments: &str| server.namespace.run(program, arguments).map(drop);
        let at_clients = |program: &str, arguments: &str| clients.namespace.run(program, arguments).map(drop);
        let peer = clients.child.id();
        needs(
            "veth",
            at_server("ip", &format!("link add {UPLINK} type veth peer name clients netns {peer}")),
        )?;
        for (namespace, device, address) in [(&server, UPLINK, SERVER), (&clients, "clients", CLIENTS)] {
            let run = |arguments: &str| namespace.namespace.run("ip", arguments).map(drop);
            run("link set lo up")?;
            run(&format!("addr add {address}/24 dev {device}"))?;
            // Each packet is one, as on a wire, and not many of them in one buffer.
            run(&format!("link set {device} txqueuelen {queue} gso_max_segs 1 up"))?;
        }
        needs("tbf", at_server("tc", &token_bucket("add", bits)))?;
        at_server("tc", &format!("qdisc add dev {UPLINK} parent 1: handle 2: pfifo_fast"))?;
        // Clients tell the server which segments they take.
        at_clients(
            "ip",
            &format!(
                "route change {NETWORK} dev clients proto kernel scope link src {CLIENTS} advmss {segment} mtu lock {mtu}"
            ),
        )?;
        let link = Self { server, clients };
        link.clients.namespace.inside(widen_ports)?;
        Ok(link)
    }

    /// Changes the link's rate, in bits per second.
    ///
    /// # Errors
    /// If `tc` can't.
    pub fn set_rate(&self, bits: u64) -> Result<(), Error> {
        self.server.namespace.run("tc", &token_bucket("change", bits)).map(drop)
    }

    /// Where servers are.
    pub const fn server(&self) -> &Namespace {
        &self.server.namespace
    }

    /// Where clients are.
    pub const fn clients(&self) -> &Namespace {
        &self.clients.namespace
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
        state.sent = sent(&self.server.read("dev")?);
        Ok(state)
    }

    /// Packets that found the queue of the kernel full.
    ///
    /// # Errors
    /// If `tc` doesn't tell.
    pub fn dropped(&self) -> Result<u64, Error> {
        let told = self.server.namespace.run("tc", &format!("-s -j qdisc show dev {UPLINK}"))?;
        let queues: Vec<serde_json::Value> = serde_json::from_str(&told)
            .map_err(|error| Error::Experiment(format!("tc says what is no JSON: {error}")))?;
        Ok(queues.iter().filter_map(|queue| queue.get("drops")?.as_u64()).max().unwrap_or(0))
    }
}

/// Arguments of `tc` that add or change the link's rate.
fn token_bucket(verb: &str, bits: u64) -> String {
    format!(
        "qdisc {verb} dev {UPLINK} root handle 1: tbf rate {bits}bit burst {BURST} limit {ROOM} overhead {OVERHEAD}"
    )
}

fn missing(program: &str, error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        let package = if program == "unshare" { "util-linux" } else { "iproute2" };
        return Error::Missing(format!("{program} is not installed; install Debian's package {package}"));
    }
    Error::io(format!("starting {program}"))(error)
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

/// Bytes that the server's device has sent.
fn sent(devices: &str) -> u64 {
    let of_it = |line: &str| line.trim_start().strip_prefix(UPLINK)?.strip_prefix(':').map(str::to_owned);
    let Some(columns) = devices.lines().find_map(of_it) else { return 0 };
    columns.split_whitespace().nth(8).and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};

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
        assert_eq!(sent(devices), 4_711);
    }

    #[test]
    fn what_passes_a_link_is_counted_and_a_dropped_one_is_gone() {
        if !rustix::process::geteuid().is_root() {
            let error = Link::new(Properties { bits: 1, queue: 1, segment: 1_460 }).unwrap_err().to_string();
            assert!(error.contains("run this as root"), "{error}");
            return;
        }
        let link = Link::new(Properties { bits: 100_000_000, queue: 100, segment: 536 }).unwrap();
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
        let keepers = [link.server.child.id(), link.clients.child.id()];
        drop((client, server, listener, link));
        for keeper in keepers {
            assert!(!fs::exists(format!("/proc/{keeper}/ns/net")).unwrap());
        }
    }

    #[test]
    fn an_error_names_the_part_of_the_kernel_and_the_package() {
        let failed = Error::Program { program: "tc".to_owned(), output: "Unknown qdisc".to_owned() };
        let text = needs("tbf", Err(failed)).unwrap_err().to_string();
        assert!(text.contains("Unknown qdisc (does this kernel have `tbf`?)"), "{text}");
        let text = missing("tc", std::io::ErrorKind::NotFound.into()).to_string();
        assert!(text.contains("Debian's package iproute2"), "{text}");
    }
}
