//! What a service manager is told, and the unit by which systemd runs a gatekeeper.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Only a hang takes longer.
const BOUND: Duration = Duration::from_secs(30);

/// The next message but for signs of life.
fn next(socket: &UnixDatagram) -> String {
    loop {
        let mut buffer = [0; 1024];
        let length = socket.recv(&mut buffer).expect("a message comes");
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if text.trim_end() != "WATCHDOG=1" {
            return text;
        }
    }
}

fn signal(process: &Child, name: &str) {
    let status = Command::new("kill").args([format!("-{name}"), process.id().to_string()]).status();
    assert!(status.expect("kill runs").success());
}

fn starts_and_shows_life(socket: &UnixDatagram) {
    assert_eq!(next(socket), "READY=1\n");
    let mut buffer = [0; 64];
    let length = socket.recv(&mut buffer).expect("a sign of life comes");
    assert_eq!(&buffer[..length], b"WATCHDOG=1\n");
}

fn stops(socket: &UnixDatagram, mut process: Child) {
    signal(&process, "TERM");
    assert_eq!(next(socket), "STOPPING=1\n");
    assert!(process.wait().expect("it ends").success());
}

#[test]
fn a_service_manager_hears_of_the_start_a_reload_life_and_the_end() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (socket_path, config) = (directory.path().join("notify"), directory.path().join("gatekeeper.toml"));
    // Nothing is asked of the upstream.
    let gate = "[admin]\nlisten = \"127.0.0.1:0\"\n[[gate]]\nprotocol = \"http\"\nlisten = \"127.0.0.1:0\"\nupstream = \"127.0.0.1:1\"\n";
    std::fs::write(&config, gate).expect("a file is written");
    let socket = UnixDatagram::bind(&socket_path).expect("a socket");
    socket.set_read_timeout(Some(BOUND)).expect("a bound");
    // systemd names the process that is to show signs of life.
    let process = Command::new("sh")
        .args(["-c", "WATCHDOG_PID=$$ exec \"$0\" run --config \"$1\"", env!("CARGO_BIN_EXE_gatekeeper")])
        .arg(&config)
        .env("NOTIFY_SOCKET", &socket_path)
        .env("WATCHDOG_USEC", "20000")
        .stderr(Stdio::null())
        .spawn()
        .expect("gatekeeper starts");
    starts_and_shows_life(&socket);
    signal(&process, "HUP");
    assert!(next(&socket).starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(next(&socket), "READY=1\n");
    // A file that is wrong changes nothing, and the process goes on.
    std::fs::write(&config, "nonsense").expect("a file is written");
    signal(&process, "HUP");
    assert!(next(&socket).starts_with("RELOADING=1\n"));
    assert_eq!(next(&socket), "READY=1\n");
    stops(&socket, process);
}

#[test]
fn a_manager_with_an_abstract_socket_and_a_watchdog_for_nobody_in_particular_is_told() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("gatekeeper.toml");
    let gate = "[[gate]]\nprotocol = \"http\"\nlisten = \"127.0.0.1:0\"\nupstream = \"127.0.0.1:1\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    std::fs::write(&config, gate).expect("a file is written");
    let name = format!("gatekeeper-{}", directory.path().display());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let socket = UnixDatagram::bind_addr(&address).expect("a socket");
    socket.set_read_timeout(Some(BOUND)).expect("a bound");
    let process = Command::new(env!("CARGO_BIN_EXE_gatekeeper"))
        .args(["run", "--config"])
        .arg(&config)
        .env("NOTIFY_SOCKET", format!("@{name}"))
        .env("WATCHDOG_USEC", "20000")
        .env_remove("WATCHDOG_PID")
        .stderr(Stdio::null())
        .spawn()
        .expect("gatekeeper starts");
    starts_and_shows_life(&socket);
    stops(&socket, process);
}

#[test]
fn an_upgrade_moves_the_service_to_the_successor_or_says_why_it_does_not() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [notify, config, admin] =
        ["notify", "gatekeeper.toml", "admin.sock"].map(|name| directory.path().join(name));
    let gate = format!(
        "[admin]\nlisten = \"none\"\nsocket = \"{}\"\n[[gate]]\nprotocol = \"http\"\nlisten = \"127.0.0.1:0\"\nupstream = \"127.0.0.1:1\"\n",
        admin.display()
    );
    std::fs::write(&config, &gate).expect("a file is written");
    let socket = UnixDatagram::bind(&notify).expect("a socket");
    socket.set_read_timeout(Some(BOUND)).expect("a bound");
    let mut process = Command::new(env!("CARGO_BIN_EXE_gatekeeper"))
        .args(["run", "--config"])
        .arg(&config)
        .env("NOTIFY_SOCKET", &notify)
        .stderr(Stdio::null())
        .spawn()
        .expect("gatekeeper starts");
    assert_eq!(next(&socket), "READY=1\n");
    let upgrade = || {
        let command = ["upgrade", "--admin", &format!("unix:{}", admin.display())];
        let output = Command::new(env!("CARGO_BIN_EXE_gatekeeper")).args(command).output();
        let output = output.expect("gatekeeper runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    std::fs::write(&config, "[[gate]]\nupstrem = \"x:1\"\n").expect("a file is written");
    let (code, _, said) = upgrade();
    assert!(code == Some(1) && said.contains("nothing has changed"), "{said}");
    assert!(said.contains("did you mean `upstream`?"), "{said}");
    assert!(process.try_wait().expect("it can be asked").is_none(), "it goes on");

    std::fs::write(&config, &gate).expect("a file is written");
    let (successor, status, (code, told, said)) = std::thread::scope(|scope| {
        let asked = scope.spawn(upgrade);
        let successor = next(&socket);
        let successor = successor.trim_end().strip_prefix("MAINPID=").expect("the new process is named");
        let status = std::fs::read_to_string(format!("/proc/{successor}/status")).expect("it lives");
        (successor.to_owned(), status, asked.join().expect("it answers"))
    });
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(told.starts_with(&format!("process {successor} accepts clients")), "{told}");
    // A manager sees the end of its own children only; an orphan is one.
    assert!(!status.contains(&format!("\nPPid:\t{}\n", process.id())), "{status}");
    assert_eq!(next(&socket), "READY=1\n");
    // Nobody is connected.
    assert!(process.wait().expect("it ends").success());

    // The way back, by a signal, and the end of the last one.
    assert!(Command::new("kill").args(["-USR2", &successor]).status().expect("kill runs").success());
    let last = next(&socket);
    let last = last.trim_end().strip_prefix("MAINPID=").expect("the last process is named").to_owned();
    assert_eq!(next(&socket), "READY=1\n");
    assert!(Command::new("kill").args(["-TERM", &last]).status().expect("kill runs").success());
    assert_eq!(next(&socket), "STOPPING=1\n");
}

#[test]
fn on_sockets_of_the_service_manager_clients_are_served_also_after_an_upgrade() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [config, admin] = ["gatekeeper.toml", "admin.sock"].map(|name| directory.path().join(name));
    let free = || testbed::postgres::free_port().expect("a port");
    let (port, network, nobody) = (free(), free(), free());
    let gate = format!(
        "[admin]\nlisten = \"127.0.0.1:{network}\"\nsocket = \"{}\"\n[[gate]]\nprotocol = \"http\"\nlisten = \"127.0.0.1:{port}\"\nupstream = \"127.0.0.1:1\"\n",
        admin.display()
    );
    std::fs::write(&config, gate).expect("a file is written");
    let log = directory.path().join("log");
    let listens = [port, network, nobody].map(|port| format!("--listen=127.0.0.1:{port}"));
    let mut process = Command::new("systemd-socket-activate")
        .args(&listens)
        .args([env!("CARGO_BIN_EXE_gatekeeper"), "run", "--config"])
        .arg(&config)
        .stderr(std::fs::File::create(&log).expect("a file"))
        .spawn()
        .expect("systemd-socket-activate runs; scripts/setup systemd installs it");
    // It opens the sockets, and becomes the gatekeeper with the first client. Nobody else can listen there.
    let asked = || {
        let deadline = std::time::Instant::now() + BOUND;
        let mut client = loop {
            match std::net::TcpStream::connect(("127.0.0.1", port)) {
                Ok(client) => break client,
                Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        client.set_read_timeout(Some(BOUND)).expect("a bound");
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it is sent");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer comes");
        answer
    };
    let log = || std::fs::read_to_string(&log).expect("a log");
    let answer = asked();
    assert!(answer.starts_with("HTTP/1.1 5") && answer.contains("gatekeeper"), "{answer}\n{}", log());
    assert_eq!(log().matches("the service manager has opened this socket").count(), 2, "{}", log());
    assert!(log().contains("a socket that no `listen` names"), "{}", log());

    let mut upgrade = Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
    let output = upgrade.args(["upgrade", "--admin", &format!("unix:{}", admin.display())]).output();
    let output = output.expect("gatekeeper runs");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}\n{}", log());
    assert!(process.wait().expect("it ends").success());
    assert!(asked().starts_with("HTTP/1.1 5"));
    let successor = told.strip_prefix("process ").and_then(|told| told.split(' ').next()).expect("a process");
    assert!(Command::new("kill").args(["-TERM", successor]).status().expect("kill runs").success());
}

#[test]
fn systemd_takes_the_unit_and_finds_little_exposed() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/gatekeeper.service");
    let text = std::fs::read_to_string(unit).expect("the unit is there");
    // It would hide /proc/meminfo, by which memory_max = "auto" is chosen.
    assert!(!text.lines().any(|line| line.starts_with("ProcSubset=")));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let here = directory.path().join("gatekeeper.service");
    // What is verified must exist on this machine.
    let text = text.replace("/usr/bin/gatekeeper", env!("CARGO_BIN_EXE_gatekeeper"));
    std::fs::write(&here, text).expect("the unit is written");
    let analyze = |arguments: &[&str]| {
        let output = Command::new("systemd-analyze").args(arguments).arg(&here).output();
        output.expect("systemd-analyze runs; scripts/setup systemd installs it")
    };
    let output = analyze(&["verify"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("gatekeeper.service"), "{said}");
    let output = analyze(&["security", "--offline=true", "--threshold=20"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
