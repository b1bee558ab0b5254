//! Tests of the listener.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::*;
use crate::shutdown::shutdown;

fn bounds(sockets_max: usize, drain_timeout: Duration) -> impl Fn() -> Bounds {
    move || Bounds { sockets_max, drain_timeout, backlog: Backlog::Closed }
}

const FOREVER: Duration = Duration::from_secs(3600);

async fn local() -> (Listener, String) {
    let address = Address::inet("127.0.0.1", 0);
    let listener = Listener::bind(&address, Keepalive::default()).await.unwrap();
    let address = listener.address().to_string();
    (listener, address)
}

/// Says the byte that it heard.
async fn echo(mut stream: Stream) {
    let byte = stream.read_u8().await.unwrap();
    stream.write_u8(byte).await.unwrap();
}

async fn echoed(stream: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin)) -> u8 {
    stream.write_u8(7).await.unwrap();
    stream.read_u8().await.unwrap()
}

#[tokio::test]
async fn clients_are_served_over_tcp_until_the_gate_drains() {
    let (listener, address) = local().await;
    let (trigger, shutdown) = shutdown();
    let talk = async {
        assert_eq!(echoed(&mut TcpStream::connect(&address).await.unwrap()).await, 7);
        trigger.drain();
    };
    tokio::join!(listener.serve(bounds(10, FOREVER), &shutdown, echo), talk);
    assert!(TcpStream::connect(&address).await.is_err());
}

#[tokio::test]
async fn who_is_accepted_has_what_the_listener_was_set_to() {
    let address = Address::inet("127.0.0.1", 0);
    let keepalive = Keepalive { idle: Duration::from_secs(77), ..Keepalive::default() };
    let listener = Listener::bind(&address, keepalive).await.unwrap();
    let address = listener.address().to_string();
    let (trigger, shutdown) = shutdown();
    let serve = async |stream: Stream| {
        let Stream::Tcp(socket) = &stream else { panic!("a TCP connection") };
        let set = SockRef::from(socket);
        assert!(set.tcp_nodelay().unwrap() && set.keepalive().unwrap());
        assert_eq!(set.tcp_keepalive_time().unwrap(), Duration::from_secs(77));
        echo(stream).await;
    };
    let talk = async {
        assert_eq!(echoed(&mut TcpStream::connect(&address).await.unwrap()).await, 7);
        trigger.drain();
    };
    tokio::join!(listener.serve(bounds(10, FOREVER), &shutdown, serve), talk);
}

#[tokio::test]
async fn a_client_that_is_there_may_finish_while_the_gate_drains() {
    let (listener, address) = local().await;
    let (trigger, shutdown) = shutdown();
    let accepted = Arc::new(Notify::new());
    let tell = Arc::clone(&accepted);
    let serve = move |stream| {
        tell.notify_one();
        echo(stream)
    };
    let talk = async {
        let mut client = TcpStream::connect(&address).await.unwrap();
        accepted.notified().await;
        trigger.drain();
        assert_eq!(echoed(&mut client).await, 7);
    };
    tokio::join!(listener.serve(bounds(10, FOREVER), &shutdown, serve), talk);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_finish_in_time_is_cut_off() {
    let (listener, address) = local().await;
    let (trigger, shutdown) = shutdown();
    let talk = async {
        let mut client = TcpStream::connect(&address).await.unwrap();
        let mut other = TcpStream::connect(&address).await.unwrap();
        assert_eq!(echoed(&mut other).await, 7);
        trigger.drain();
        assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0);
    };
    tokio::join!(listener.serve(bounds(10, Duration::from_secs(30)), &shutdown, echo), talk);
}

#[tokio::test]
async fn more_sockets_than_may_be_open_are_closed_at_once() {
    let (listener, address) = local().await;
    let (trigger, shutdown) = shutdown();
    let talk = async {
        let mut first = TcpStream::connect(&address).await.unwrap();
        let mut second = TcpStream::connect(&address).await.unwrap();
        assert_eq!(second.read(&mut [0]).await.unwrap_or(0), 0);
        assert_eq!(echoed(&mut first).await, 7);
        trigger.drain();
    };
    tokio::join!(listener.serve(bounds(1, FOREVER), &shutdown, echo), talk);
}

#[tokio::test]
async fn newcomers_who_are_not_let_in_keep_nobody_else_from_a_turn() {
    const NEWCOMERS: usize = 400;
    let (listener, address) = local().await;
    let newcomers: Vec<_> = (0..NEWCOMERS).map(|_| net::TcpStream::connect(&address).unwrap()).collect();
    let (trigger, shutdown) = shutdown();
    let looked_at = std::cell::Cell::new(0);
    let none = || {
        looked_at.set(looked_at.get() + 1);
        bounds(0, FOREVER)()
    };
    let other = async {
        while looked_at.get() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(looked_at.get() < NEWCOMERS, "all of them were closed first");
        drop(newcomers);
        trigger.drain();
    };
    tokio::join!(listener.serve(none, &shutdown, echo), other);
}

#[tokio::test]
async fn a_unix_socket_is_removed_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gate");
    let listener = Listener::bind(&Address::Unix(path.clone()), Keepalive::default()).await.unwrap();
    let (trigger, shutdown) = shutdown();
    let talk = async {
        assert_eq!(echoed(&mut UnixStream::connect(&path).await.unwrap()).await, 7);
        trigger.drain();
    };
    tokio::join!(listener.serve(bounds(10, FOREVER), &shutdown, echo), talk);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_socket_file_is_replaced_only_if_nobody_listens_on_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gate");
    let address = Address::Unix(path.clone());
    // The standard library leaves the file behind, as a crash does.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let listener = Listener::bind(&address, Keepalive::default()).await.unwrap();
    let second = Listener::bind(&address, Keepalive::default()).await;
    assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    drop(listener);
    std::fs::write(&path, "not a socket").unwrap();
    assert!(Listener::bind(&address, Keepalive::default()).await.is_err());
    assert!(path.exists());
}

#[tokio::test]
async fn a_port_in_use_is_an_error() {
    let (listener, _) = local().await;
    let second = Listener::bind(&listener.address(), Keepalive::default()).await;
    assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn a_client_that_has_gone_before_it_is_let_in_is_not_served() {
    let (listener, address) = local().await;
    let lateness = Arc::new(Lateness::new(Clock::start()));
    let listener = listener.minding(Arc::clone(&lateness));
    let (trigger, shutdown) = shutdown();
    let gone = TcpStream::connect(&address).await.unwrap();
    gone.set_zero_linger().unwrap();
    drop(gone);
    let talk = async {
        assert_eq!(echoed(&mut TcpStream::connect(&address).await.unwrap()).await, 7);
        trigger.drain();
    };
    // Its byte would never come, and the session would end by a fault.
    tokio::join!(listener.serve(bounds(10, FOREVER), &shutdown, echo), talk);
    assert_eq!(lateness.view().gone, 1);
}

#[tokio::test]
async fn a_listener_tells_that_nobody_is_waiting() {
    let (listener, _) = local().await;
    let lateness = Arc::new(Lateness::new(Clock::start()));
    let listener = listener.minding(Arc::clone(&lateness));
    let (trigger, shutdown) = shutdown();
    let looks = async {
        for _ in 0..20 {
            // Those came and were let in at once.
            (0..100).for_each(|_| lateness.came());
            lateness.look("in time", 0);
            tokio::task::yield_now().await;
        }
        assert_eq!(lateness.view().backlog, None, "it was said to be besieged");
        trigger.drain();
    };
    tokio::join!(listener.serve(bounds(10, FOREVER), &shutdown, echo), looks);
}

#[tokio::test]
async fn newcomers_wait_until_the_gate_is_in_time_again() {
    let (listener, address) = local().await;
    let lateness = Lateness::by_an_hour();
    let listener = listener.minding(Arc::clone(&lateness));
    let (trigger, shutdown) = shutdown();
    let in_time = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&in_time);
    let serve = move |stream| {
        assert!(seen.load(Ordering::SeqCst), "it was let in by a gate that is late");
        echo(stream)
    };
    let talk = async {
        let mut client = TcpStream::connect(&address).await.unwrap();
        client.write_u8(7).await.unwrap();
        // The listener has looked at its queue several times meanwhile, and at what the gate says.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        in_time.store(true, Ordering::SeqCst);
        lateness.look("in time", 0);
        assert_eq!(client.read_u8().await.unwrap(), 7);
        trigger.drain();
    };
    tokio::join!(listener.serve(bounds(10, FOREVER), &shutdown, serve), talk);
}
