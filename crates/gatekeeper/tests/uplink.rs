//! The kernel's bands on a real link: `gatekeeper uplink setup`, and a gate whose sockets move through them.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic, clippy::unwrap_used)]

mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use support::until;
use testbed::link::{Link, Properties, SERVER};
use testbed::postgres::free_port;

const PATIENCE: Duration = Duration::from_secs(60);
const LARGE: usize = 1_000_000;
const SMALL: usize = 4_000;
const TINY: usize = 100;

/// A link whose device has no discipline of its own; `None`: only root can have one.
fn bare_link() -> Option<Link> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can make network namespaces");
        return None;
    }
    let link = Link::new(Properties { bits: 100_000_000, queue: 100, segment: 1_460, wan: None }).unwrap();
    link.server().run("tc", "qdisc delete dev uplink root").unwrap();
    Some(link)
}

/// Runs the program on the server's side, with what stands before it.
fn run(link: &Link, before: &[&str], arguments: &str) -> (Option<i32>, String) {
    let mut words = before.to_vec();
    words.push(env!("CARGO_BIN_EXE_gatekeeper"));
    words.extend(arguments.split(' '));
    let Output { status, stdout, stderr } =
        link.server().inside(|| Ok(Command::new(words[0]).args(&words[1..]).output().unwrap())).unwrap();
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

const SETUP: &str = "uplink setup --dev uplink --rate 100Mbit --apply";
/// Without any privilege over the network.
const UNPRIVILEGED: [&str; 2] = ["unshare", "--user"];

#[test]
fn a_device_gets_its_bands_once_and_what_is_missing_is_said() {
    let Some(link) = bare_link() else { return };
    let disciplines = || link.server().run("tc", "qdisc show dev uplink").unwrap();
    let (code, said) = run(&link, &UNPRIVILEGED, SETUP);
    assert!(code == Some(1) && said.contains("it takes CAP_NET_ADMIN: run it as root"), "{said}");
    // Not every kernel has it.
    let (code, said) = run(&link, &[], &format!("{SETUP} --bands prio"));
    if code == Some(0) {
        assert!(disciplines().contains("prio"), "{}", disciplines());
        link.server().run("tc", "qdisc delete dev uplink root").unwrap();
    } else {
        assert!(said.contains("the kernel lacks this discipline"), "{said}");
        assert!(!disciplines().contains("tbf"), "what was half done is undone: {}", disciplines());
    }
    let (code, said) = run(&link, &[], &format!("{SETUP} --bands pfifo_fast"));
    assert!(code == Some(0) && disciplines().contains("pfifo_fast 10: parent 1:1"), "{said}");
    let (code, said) = run(&link, &[], SETUP);
    assert!(code == Some(1) && said.contains("has a discipline of its own"), "{said}");
    assert!(disciplines().contains("tbf"), "what others have made stays");
}

/// The bytes that a class of HTB has sent.
fn sent(link: &Link, class: &str) -> u64 {
    let told = link.server().run("tc", "-s class show dev uplink").unwrap();
    let (_, of_class) = told.split_once(&format!("class htb {class} ")).unwrap();
    let (_, sent) = of_class.split_once("Sent ").unwrap();
    sent.split(' ').next().unwrap().parse().unwrap()
}

/// Fetches a file over a connection of its own; `None`: nobody answers.
fn fetch(link: &Link, port: u16, bytes: usize) -> Option<usize> {
    let mut answer = Vec::new();
    link.clients()
        .inside(|| {
            let address = (SERVER, port).to_socket_addrs().unwrap().next().unwrap();
            let Ok(mut stream) = TcpStream::connect(address) else { return Ok(None) };
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            write!(stream, "GET /{bytes} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
            stream.read_to_end(&mut answer).unwrap();
            let head = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            Ok(Some(answer.len() - head))
        })
        .unwrap()
}

/// Writes the configuration of a gate that serves this directory.
fn configuration(directory: &Path, port: u16, uplink: &str) -> PathBuf {
    let file = directory.join("gatekeeper.toml");
    let text = format!(
        "[[gate]]\nprotocol = \"http\"\nlisten = \"0.0.0.0:{port}\"\nupstream = \"127.0.0.1:9\"\nuplink = \"{uplink}\"\n\
         [[gate.route]]\npath = \"/**\"\nstatic = {:?}\n",
        directory.display().to_string()
    );
    fs::write(&file, text).unwrap();
    file
}

fn start(link: &Link, file: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
    command.arg("run").arg("--config").arg(file).stderr(Stdio::piped());
    link.server().inside(|| Ok(command.spawn().unwrap())).unwrap()
}

/// Ends a gate, and returns what it has logged.
fn end(mut gate: Child) -> String {
    gate.kill().unwrap();
    String::from_utf8(gate.wait_with_output().unwrap().stderr).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_says_that_no_device_has_its_bands() {
    let Some(link) = bare_link() else { return };
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(TINY.to_string()), vec![b'x'; TINY]).unwrap();
    for (uplink, names) in [("htb", "htb 1:"), ("prio", "prio"), ("pfifo_fast", "pfifo_fast")] {
        let port = free_port().unwrap();
        let gate = start(&link, &configuration(directory.path(), port, uplink));
        until("it answers", async || fetch(&link, port, TINY) == Some(TINY)).await;
        let said = end(gate);
        let expected = format!("no network device has the queueing discipline {names} (");
        assert!(said.contains(&expected) && said.contains("gatekeeper uplink setup"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_moves_through_the_classes_of_the_kernel_as_its_response_shrinks() {
    let Some(link) = bare_link() else { return };
    let (code, said) = run(&link, &[], SETUP);
    assert!(code == Some(0) && said.contains("`tc qdisc delete dev uplink root` removes them"), "{said}");
    let directory = tempfile::tempdir().unwrap();
    for bytes in [LARGE, SMALL, TINY] {
        fs::write(directory.path().join(bytes.to_string()), vec![b'x'; bytes]).unwrap();
    }
    let port = free_port().unwrap();
    let file = configuration(directory.path(), port, "htb");
    let (code, said) = run(&link, &UNPRIVILEGED, &format!("run --config {}", file.display()));
    assert!(code == Some(2) && said.contains("give the gatekeeper CAP_NET_ADMIN"), "{code:?} {said}");
    let gate = start(&link, &file);
    until("it answers", async || fetch(&link, port, TINY) == Some(TINY)).await;
    assert_eq!([LARGE, SMALL].map(|bytes| fetch(&link, port, bytes)), [Some(LARGE), Some(SMALL)]);
    let said = end(gate);
    assert!(!said.contains("queueing discipline"), "{said}");
    let bands: Vec<u64> = (0..5).map(|band| sent(&link, &format!("1:1{band}"))).collect();
    // The large one begins in the last band and ends in others, the small one in the third.
    assert!(bands[4] > 500_000 && bands[4] < 1_050_000, "{bands:?}");
    assert!(bands[2] > 4_000, "{bands:?}");
    // Handshakes, heads of requests' answers and the tiny one are in the first.
    assert!(bands[0] > 100 && bands[0] < 100_000, "{bands:?}");
}
