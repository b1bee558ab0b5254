//! Logins byte for byte, against a scripted server on a Unix socket; `real` has those against PostgreSQL
//! itself.

mod first_packets;
mod late;
mod real;
mod turns;

use std::future::Future;
use std::net::SocketAddr;

use admission::{Cost, Duration as PolicyDuration, Order, Policy, Work};
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use wire::postgres::startup::parameter;

use super::super::Pooling;
use super::relay::may_relay_trust;
use super::*;
use crate::gate::Driver;
use crate::shutdown::{Trigger, shutdown};
use crate::source::Source;
use crate::stream::Peer;
use crate::upstream::address::Address;

const SSL_REQUEST: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x2f";
const GSS_REQUEST: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x30";
const ASK_PASSWORD: &[u8] = b"R\0\0\0\x08\0\0\0\x03";
const ACCEPT: &[u8] = b"R\0\0\0\x08\0\0\0\0";
/// What a server says behind AuthenticationOk: a setting, its key, ready.
const GREETING: &[u8] = b"S\0\0\0\x11TimeZone\0UTC\0K\0\0\0\x0c\0\0\0\x01\0\0\0\x02Z\0\0\0\x05I";

/// A policy that plays no role here.
fn policy() -> Policy {
    Policy {
        capacity: admission::Capacity::Unlimited,
        connections: 20,
        long_limit: None,
        cost: Cost::Ewma { weight: 0.1 },
        order: Order::ShortestFirst { aging: None, floor: Work::ZERO },
        queue_max: 10,
        queue_timeout: PolicyDuration::from_nanos(1_000_000_000),
        pinned_max: 10,
        types_max: 10,
        ..Policy::default()
    }
}

fn shared(settings: Settings) -> (Arc<Shared>, Trigger) {
    let (trigger, shutdown) = shutdown();
    let driver = Driver::new("test", policy(), 1);
    (Arc::new(Shared::new(settings, driver, shutdown)), trigger)
}

/// A scripted server, and the gate in front of it.
struct World {
    shared: Arc<Shared>,
    trigger: Trigger,
    server: UnixListener,
    _directory: TempDir,
}

impl World {
    fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("server");
        let server = UnixListener::bind(&path).unwrap();
        let mut settings = Settings::new(Address::Unix(path));
        settings.ask_cores = false;
        settings.ask_defaults = false;
        change(&mut settings);
        let (shared, trigger) = shared(settings);
        Self { shared, trigger, server, _directory: directory }
    }

    fn ordinary() -> Self {
        Self::new(|_| {})
    }

    /// A client's end, and its login.
    fn client(&self) -> (UnixStream, impl Future<Output = Option<LoggedIn>>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (theirs, login(&self.shared, Stream::unix(ours)))
    }

    /// The server's next connection, behind its start-up message.
    async fn accept(&self) -> (UnixStream, Vec<u8>) {
        let (mut stream, _) = self.server.accept().await.unwrap();
        let startup = read_startup(&mut stream).await;
        (stream, startup)
    }

    /// A server that asks for a password, likes it, and greets.
    async fn accept_login(&self) -> UnixStream {
        let (mut server, _) = self.accept().await;
        server.write_all(ASK_PASSWORD).await.unwrap();
        assert_eq!(read(&mut server, 8).await, b"p\0\0\0\x07me\0");
        server.write_all(ACCEPT).await.unwrap();
        server.write_all(GREETING).await.unwrap();
        server
    }

    /// A whole login by password; what the client got behind the challenge, and the session.
    async fn log_in(&self, user: &str) -> (UnixStream, Option<LoggedIn>) {
        let (mut client, login) = self.client();
        let talk = async {
            client.write_all(&startup(3 << 16, &[("user", user)])).await.unwrap();
            assert_eq!(read(&mut client, ASK_PASSWORD.len()).await, ASK_PASSWORD);
            client.write_all(b"p\0\0\0\x07me\0").await.unwrap();
        };
        let (session, _server, ()) = tokio::join!(login, self.accept_login(), talk);
        (client, session)
    }

    /// What a client hears that says `words` and then waits for the end.
    async fn heard(&self, words: &[u8]) -> Vec<u8> {
        let (mut client, login) = self.client();
        client.write_all(words).await.unwrap();
        assert!(login.await.is_none());
        rest(&mut client).await
    }
}

/// Where a session's connections come from.
fn pool(session: &LoggedIn) -> admission::PoolId {
    session.lease.as_ref().unwrap().pool()
}

fn startup(version: u32, parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = version.to_be_bytes().to_vec();
    for (name, value) in parameters {
        body.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
    }
    body.push(0);
    let mut message = u32::try_from(body.len() + 4).unwrap().to_be_bytes().to_vec();
    message.extend_from_slice(&body);
    message
}

async fn read_startup(stream: &mut UnixStream) -> Vec<u8> {
    let mut message = read(stream, 4).await;
    let length = u32::from_be_bytes(message[..4].try_into().unwrap()) as usize;
    message.extend(read(stream, length - 4).await);
    message
}

async fn read(stream: &mut (impl AsyncReadExt + Unpin), count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

async fn rest(stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut bytes).await;
    bytes
}

/// The SQLSTATE of the one FATAL error that these bytes are.
fn fatal(bytes: &[u8]) -> String {
    let mut input = BytesMut::from(bytes);
    let message = Message::take(&mut input, Sender::Server).unwrap().expect("a whole message");
    assert_eq!((message.tag(), input.len()), (b'E', 0), "{}", bytes.escape_ascii());
    let fields = parse_error(message.body());
    assert!(fields.is_fatal());
    fields.code().to_owned()
}

#[tokio::test]
async fn what_is_no_client_hears_nothing() {
    let world = World::ordinary();
    for words in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0\0\0\0",
        b"\0\0\0\x07",
        b"\x7f\xff\xff\xff",
    ] {
        assert_eq!(world.heard(words).await, b"", "{}", words.escape_ascii());
    }
}

#[tokio::test]
async fn bytes_behind_an_encryption_request_end_the_connection_unanswered() {
    let world = World::ordinary();
    for request in [SSL_REQUEST, GSS_REQUEST] {
        let both = [request, &startup(3 << 16, &[("user", "ann")])].concat();
        assert_eq!(world.heard(&both).await, b"");
    }
}

#[tokio::test]
async fn each_kind_of_encryption_may_be_asked_for_once() {
    let world = World::ordinary();
    for requests in [[GSS_REQUEST, SSL_REQUEST], [SSL_REQUEST, GSS_REQUEST]] {
        let (mut client, login) = world.client();
        let talk = async {
            for request in requests {
                client.write_all(request).await.unwrap();
                assert_eq!(read(&mut client, 1).await, b"N");
            }
            client.write_all(requests[0]).await.unwrap();
            assert_eq!(rest(&mut client).await, b"");
        };
        assert!(tokio::join!(login, talk).0.is_none());
    }
}

#[tokio::test]
async fn what_cannot_start_a_session_is_told_why() {
    let world = World::ordinary();
    assert_eq!(fatal(&world.heard(&startup(2 << 16, &[("user", "ann")])).await), "0A000");
    assert_eq!(fatal(&world.heard(&startup(4 << 16, &[("user", "ann")])).await), "0A000");
    assert_eq!(fatal(&world.heard(&startup(3 << 16, &[("database", "shop")])).await), "28000");
    for value in ["true", "database", "on", "1"] {
        let replication = startup(3 << 16, &[("user", "ann"), ("replication", value)]);
        assert_eq!(fatal(&world.heard(&replication).await), "0A000");
    }
}

#[tokio::test]
async fn a_login_is_relayed_unchanged_and_greeted_with_a_key_of_our_own() {
    let world = World::ordinary();
    let (mut client, login) = world.client();
    let words = startup(3 << 16, &[("user", "ann"), ("database", "shop"), ("application_name", "x")]);
    let sasl = b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0";
    let script = async {
        let (mut server, seen) = world.accept().await;
        assert_eq!(seen, words);
        server.write_all(sasl).await.unwrap();
        assert_eq!(read(&mut server, 10).await, b"p\0\0\0\x09hello");
        server.write_all(b"R\0\0\0\x0a\0\0\0\x0bab").await.unwrap();
        assert_eq!(read(&mut server, 8).await, b"p\0\0\0\x07cde");
        server.write_all(b"R\0\0\0\x0a\0\0\0\x0cok").await.unwrap();
        server.write_all(ACCEPT).await.unwrap();
        server.write_all(GREETING).await.unwrap();
        server
    };
    let talk = async {
        client.write_all(&words).await.unwrap();
        assert_eq!(read(&mut client, sasl.len()).await, sasl);
        client.write_all(b"p\0\0\0\x09hello").await.unwrap();
        assert_eq!(read(&mut client, 11).await, b"R\0\0\0\x0a\0\0\0\x0bab");
        // What a hasty client sends behind its last answer is the session's.
        client.write_all(b"p\0\0\0\x07cdeX\0\0\0\x04").await.unwrap();
        assert_eq!(read(&mut client, 11).await, b"R\0\0\0\x0a\0\0\0\x0cok");
        assert_eq!(read(&mut client, ACCEPT.len()).await, ACCEPT);
        read(&mut client, GREETING.len()).await
    };
    let (session, _server, greeting) = tokio::join!(login, script, talk);
    let session = session.unwrap();
    let key_at = GREETING.len() - 19;
    assert_eq!(greeting[..key_at], GREETING[..key_at]);
    let (process_id, secret) = session.cancel.key();
    assert_eq!(greeting[key_at + 5..key_at + 9], process_id.to_be_bytes());
    assert_eq!(&greeting[key_at + 9..key_at + 13], secret);
    assert_eq!(&greeting[greeting.len() - 6..], b"Z\0\0\0\x05I");
    assert_eq!(session.reported.get("TimeZone"), Some("UTC"));
    assert_eq!(&session.client_input[..], b"X\0\0\0\x04");
    assert_eq!(parameter(&session.parameters, "application_name"), Some("x"));
    let server = world.shared.pools.take(pool(&session)).unwrap();
    assert_eq!((server.process_id, &server.secret[..]), (1, &b"\0\0\0\x02"[..]));
}

#[tokio::test]
async fn errors_of_the_server_are_passed_on_unchanged() {
    const ERROR: &[u8] = b"E\0\0\0\x1aSFATAL\0C28P01\0Mwrong\0\0";
    let world = World::ordinary();
    for before in [&b""[..], ACCEPT] {
        let script = async {
            let (mut server, _) = world.accept().await;
            server.write_all(&[before, ERROR].concat()).await.unwrap();
            // The gate closes its side.
            assert_eq!(rest(&mut server).await, b"");
        };
        let words = startup(3 << 16, &[("user", "ann")]);
        let (heard, ()) = tokio::join!(world.heard(&words), script);
        assert_eq!(heard, ERROR);
    }
}

#[tokio::test]
async fn what_cannot_be_relayed_is_refused_by_name() {
    let world = World::ordinary();
    for challenge in [
        &b"R\0\0\0\x08\0\0\0\x07"[..],
        b"R\0\0\0\x08\0\0\0\x09",
        b"R\0\0\0\x08\0\0\0\x02",
        b"R\0\0\0\x1c\0\0\0\x0aSCRAM-SHA-256-PLUS\0\0",
    ] {
        let script = async {
            let (mut server, _) = world.accept().await;
            server.write_all(challenge).await.unwrap();
            assert_eq!(rest(&mut server).await, b"");
        };
        let words = startup(3 << 16, &[("user", "ann")]);
        assert_eq!(fatal(&tokio::join!(world.heard(&words), script).0), "28000");
    }
}

#[tokio::test]
async fn notices_of_the_login_are_told_when_the_client_can_take_them() {
    const NOTICE: &[u8] = b"N\0\0\0\x0eMweak md5\0";
    let notice = [&NOTICE[..4], &[0x0f], &NOTICE[5..], b"\0"].concat();
    let world = World::ordinary();
    let (mut client, login) = world.client();
    client.write_all(&startup(3 << 16, &[("user", "ann")])).await.unwrap();
    let script = async {
        let (mut server, _) = world.accept().await;
        server.write_all(&[&notice[..], ACCEPT, GREETING].concat()).await.unwrap();
        server
    };
    let (session, _server) = tokio::join!(login, script);
    assert!(session.is_some());
    let all = read(&mut client, ACCEPT.len() + GREETING.len() + notice.len()).await;
    assert!(all.starts_with(ACCEPT));
    assert!(all.ends_with(&[&notice[..], b"Z\0\0\0\x05I"].concat()));
}

#[tokio::test]
async fn a_client_that_leaves_at_the_password_takes_its_server_connection_along() {
    let world = World::ordinary();
    let (mut client, login) = world.client();
    let talk = async {
        client.write_all(&startup(3 << 16, &[("user", "ann")])).await.unwrap();
        read(&mut client, ASK_PASSWORD.len()).await;
        drop(client);
    };
    let script = async {
        let (mut server, _) = world.accept().await;
        server.write_all(ASK_PASSWORD).await.unwrap();
        rest(&mut server).await
    };
    let (session, (), rest) = tokio::join!(login, talk, script);
    assert!(session.is_none());
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn nonsense_instead_of_a_password_is_refused() {
    let world = World::ordinary();
    for nonsense in [&b"Q\0\0\0\x05\0"[..], b"p\xff\xff\xff\xff", b"\0\0\0\0\0\0"] {
        let (mut client, login) = world.client();
        let talk = async {
            client.write_all(&startup(3 << 16, &[("user", "ann")])).await.unwrap();
            read(&mut client, ASK_PASSWORD.len()).await;
            client.write_all(nonsense).await.unwrap();
            rest(&mut client).await
        };
        let script = async {
            let (mut server, _) = world.accept().await;
            server.write_all(ASK_PASSWORD).await.unwrap();
            rest(&mut server).await
        };
        assert_eq!(fatal(&tokio::join!(login, talk, script).1), "08P01");
    }
}

#[tokio::test]
async fn nonsense_of_the_server_is_refused() {
    let world = World::ordinary();
    for nonsense in [&b"HTTP/1.1 400 Bad Request"[..], b"R\0\0\0\x03", b"D\0\0\0\x06\0\0"] {
        let script = async {
            let (mut server, _) = world.accept().await;
            server.write_all(nonsense).await.unwrap();
            server
        };
        let words = startup(3 << 16, &[("user", "ann")]);
        assert_eq!(fatal(&tokio::join!(world.heard(&words), script).0), "08P01");
    }
}

#[tokio::test]
async fn a_server_that_is_down_or_goes_away_is_told() {
    let world = World::ordinary();
    let words = startup(3 << 16, &[("user", "ann")]);
    let script = async { drop(world.accept().await) };
    assert_eq!(fatal(&tokio::join!(world.heard(&words), script).0), "08006");
    let down = World::new(|settings| settings.upstream = Address::Unix("/nonexistent/server".into()));
    assert_eq!(fatal(&down.heard(&words).await), "57P03");
}

#[tokio::test]
async fn no_more_clients_than_max_clients_log_in() {
    let world = World::new(|settings| settings.max_clients = 1);
    let (_client, session) = world.log_in("ann").await;
    let words = startup(3 << 16, &[("user", "ann")]);
    assert_eq!(fatal(&world.heard(&words).await), "53300");
    drop(session);
    assert!(world.log_in("ann").await.1.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_key_without_room_hears_so_before_it_is_let_in() {
    let world = World::new(|settings| settings.connections = 1);
    let (_client, _session) = world.log_in("ann").await;
    let (mut client, session) = world.log_in("bob").await;
    assert!(session.is_none());
    assert_eq!(fatal(&rest(&mut client).await), "53300");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_is_closed_in_time() {
    let world = World::ordinary();
    assert_eq!(world.heard(b"").await, b"");
    assert_eq!(world.heard(b"\0\0\0\x20").await, b"");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_not_blamed_on_the_client() {
    let world = World::new(|settings| settings.logins_max = 1);
    let words = startup(3 << 16, &[("user", "ann")]);
    let others = world.shared.logins.take(Source::Gate).await;
    assert_eq!(fatal(&world.heard(&words).await), "53300");
    drop(others);
    let silent = async {
        let _server = world.accept().await;
        std::future::pending::<()>().await;
    };
    let heard = tokio::select! { heard = world.heard(&words) => heard, () = silent => Vec::new() };
    assert_eq!(fatal(&heard), "57P03");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_gives_no_password_is_refused_in_time() {
    let world = World::ordinary();
    let script = async {
        let (mut server, _) = world.accept().await;
        server.write_all(ASK_PASSWORD).await.unwrap();
        assert_eq!(rest(&mut server).await, b"");
    };
    let words = startup(3 << 16, &[("user", "ann")]);
    let heard = tokio::join!(world.heard(&words), script).0;
    assert_eq!(fatal(&heard[ASK_PASSWORD.len()..]), "57014");
}

#[tokio::test]
async fn no_more_logins_than_logins_max_reach_the_server_at_once() {
    let world = World::new(|settings| settings.logins_max = 1);
    let words = startup(3 << 16, &[("user", "ann")]);
    let (mut one, first) = world.client();
    let (mut two, second) = world.client();
    one.write_all(&words).await.unwrap();
    two.write_all(&words).await.unwrap();
    let script = async {
        let (mut server, _) = world.accept().await;
        let next = world.accept();
        tokio::pin!(next);
        // The second login has had every opportunity to get on.
        for _ in 0..100 {
            tokio::select! {
                biased;
                _ = &mut next => panic!("there are two logins at the server"),
                () = tokio::task::yield_now() => {}
            }
        }
        server.write_all(&[ACCEPT, GREETING].concat()).await.unwrap();
        let (mut other, _) = next.await;
        other.write_all(&[ACCEPT, GREETING].concat()).await.unwrap();
        (server, other)
    };
    let (first, second, _servers) = tokio::join!(first, second, script);
    assert!(first.is_some() && second.is_some());
}

#[tokio::test]
async fn a_login_under_way_ends_when_the_gate_drains() {
    let world = World::ordinary();
    let (mut client, login) = world.client();
    let talk = async {
        client.write_all(&startup(3 << 16, &[("user", "ann")])).await.unwrap();
        let _server = world.accept().await;
        world.trigger.drain();
        rest(&mut client).await
    };
    let (session, heard) = tokio::join!(login, talk);
    assert!(session.is_none());
    assert_eq!(fatal(&heard), "57P03");
}

#[tokio::test(start_paused = true)]
async fn in_session_mode_a_login_waits_for_a_connection_and_then_hears_why_not() {
    let world = World::new(|settings| {
        settings.pooling = Pooling::Session;
        settings.connections = 1;
    });
    let (_client, session) = world.log_in("ann").await;
    assert!(session.as_ref().is_some_and(|session| session.server.is_some() && session.lease.is_none()));
    let words = startup(3 << 16, &[("user", "bob")]);
    assert_eq!(fatal(&world.heard(&words).await), "53300");
    // The client that waits gets the place of the client that leaves.
    let (_, waiting) = tokio::join!(biased; async { drop(session) }, world.log_in("bob"));
    assert!(waiting.1.is_some());
}

#[tokio::test]
async fn in_session_mode_a_client_that_leaves_while_it_waits_leaves_the_queue() {
    let world = World::new(|settings| {
        settings.pooling = Pooling::Session;
        settings.connections = 1;
    });
    let (_client, _session) = world.log_in("ann").await;
    let (mut client, login) = world.client();
    client.write_all(&startup(3 << 16, &[("user", "bob")])).await.unwrap();
    drop(client);
    assert!(login.await.is_none());
}

#[tokio::test]
async fn while_it_only_observes_a_gate_gives_every_client_a_connection() {
    let world = World::new(|settings| {
        settings.observe = true;
        settings.connections = 1;
    });
    let (_one, first) = world.log_in("ann").await;
    let (_two, second) = world.log_in("bob").await;
    assert!(first.unwrap().server.is_some() && second.unwrap().server.is_some());
}

#[test]
fn trust_is_relayed_on_this_machine_or_by_order_only() {
    let mut settings = Settings::new(Address::Unix("/tmp/x".into()));
    let far = Peer::Inet(SocketAddr::from(([192, 0, 2, 1], 5)));
    assert!(may_relay_trust(&settings, Peer::Unix));
    assert!(may_relay_trust(&settings, Peer::Inet(SocketAddr::from(([127, 0, 0, 1], 5)))));
    assert!(!may_relay_trust(&settings, far));
    settings.allow_trust_relay = true;
    assert!(may_relay_trust(&settings, far));
}

#[tokio::test]
async fn a_trusting_server_keeps_an_open_gate_from_starting() {
    for (answer, is_open, starts) in [
        (ACCEPT, true, false),
        (ACCEPT, false, true),
        (ASK_PASSWORD, true, true),
        (b"E\0\0\0\x0cC28000\0\0", true, true),
        (b"", true, true),
    ] {
        let world = World::new(|settings| {
            let host = if is_open { "0.0.0.0" } else { "127.0.0.1" };
            settings.listen = Address::Inet { host: host.to_owned(), port: 6432 };
        });
        let script = async {
            let (mut server, _) = world.accept().await;
            server.write_all(answer).await.unwrap();
        };
        let settings = world.shared.settings();
        let probe = async {
            tokio::select! {
                result = probe_trust(&settings) => result.is_ok(),
                () = async { script.await; std::future::pending().await } => unreachable!(),
            }
        };
        assert_eq!(probe.await, starts, "{}", answer.escape_ascii());
    }
}

#[tokio::test]
async fn a_server_that_is_down_does_not_keep_a_gate_from_starting() {
    let mut settings = Settings::new(Address::Unix("/nonexistent/server".into()));
    settings.listen = Address::Inet { host: "0.0.0.0".to_owned(), port: 6432 };
    assert!(probe_trust(&settings).await.is_ok());
}

#[tokio::test]
async fn a_client_that_gives_up_before_its_turn_starts_no_server_process() {
    let world = World::new(|settings| settings.logins_max = 1);
    let _taken = world.shared.logins.take(Source::Gate).await;
    let (mut client, login) = world.client();
    client.write_all(&startup(3 << 16, &[("user", "ann")])).await.unwrap();
    drop(client);
    assert!(login.await.is_none());
}

#[tokio::test]
async fn a_gate_counts_its_clients_and_ends_when_it_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = Settings::new(Address::Unix("/nonexistent/server".into()));
    settings.listen = Address::Unix(directory.path().join("gate"));
    let (trigger, shutdown) = shutdown();
    let gate = super::super::Bound::new(settings, Driver::new("test", policy(), 1), shutdown).await.unwrap();
    let (address, status) = (gate.address(), gate.status());
    let talk = async {
        let Address::Unix(path) = address else { panic!("a Unix socket") };
        let mut client = UnixStream::connect(path).await.unwrap();
        client.write_all(&startup(3 << 16, &[("user", "ann")])).await.unwrap();
        assert_eq!(fatal(&rest(&mut client).await), "57P03");
        trigger.drain();
    };
    let (end, ()) = tokio::join!(gate.run(), talk);
    end.unwrap();
    assert_eq!((status.clients(), status.pools().len()), (0, 0));
}
