//! Tests of cancel requests, against a scripted server.

use bytes::BytesMut;
use tokio::net::{TcpListener, TcpStream, UnixStream};

use super::super::Settings;
use super::super::server::Greeting;
use super::*;
use crate::upstream::address::Address;

const SERVER_KEY: (i32, &[u8]) = (4711, b"\x01\x02\x03\x04");

struct World {
    registry: Arc<Registry>,
    upstream: TcpListener,
}

impl World {
    async fn new() -> Self {
        let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = upstream.local_addr().unwrap().port();
        Self { registry: registry(2, port), upstream }
    }

    /// The server's end of the next cancel connection, when the whole request has come.
    async fn request(&self) -> (TcpStream, Vec<u8>) {
        let (mut stream, _) = self.upstream.accept().await.unwrap();
        let mut request = vec![0; 16];
        stream.read_exact(&mut request).await.unwrap();
        (stream, request)
    }
}

fn registry(sessions_max: usize, port: u16) -> Arc<Registry> {
    let upstream = Address::Inet { host: "127.0.0.1".to_owned(), port };
    let mut settings = Settings::new(upstream);
    settings.connect_timeout = SETTLE_LIMIT;
    Arc::new(Registry::new(sessions_max, Arc::new(Endpoint::new(&settings))))
}

fn server() -> Server {
    let (ours, _) = UnixStream::pair().unwrap();
    let (process_id, secret) = (SERVER_KEY.0, Bytes::from_static(SERVER_KEY.1));
    let greeting = Greeting { process_id, secret, ..Greeting::default() };
    Server::new(Stream::unix(ours), BytesMut::new(), greeting)
}

/// Whether the future is still waiting when it is looked at once.
async fn is_waiting(future: impl Future<Output = bool>) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = std::future::ready(()) => true,
    }
}

#[tokio::test]
async fn keys_are_positive_and_different_and_bounded() {
    let world = World::new().await;
    let (one, two) = (
        world.registry.register(KeyLength::Short).unwrap(),
        world.registry.register(KeyLength::Short).unwrap(),
    );
    assert!(one.key().0 > 0 && two.key().0 > 0 && one.key().0 != two.key().0);
    // No process of a server on Linux has such an id.
    assert!(one.key().0 >= 4_194_304 && two.key().0 >= 4_194_304);
    assert!(world.registry.register(KeyLength::Short).is_none());
    drop(one);
    assert!(world.registry.register(KeyLength::Short).is_some());
}

#[tokio::test]
async fn a_session_at_rest_is_not_canceled() {
    let world = World::new().await;
    let session = world.registry.register(KeyLength::Short).unwrap();
    let (process_id, secret) = session.key();
    world.registry.cancel(process_id, secret).await;
    assert!(session.settled().await);
    session.queued();
    assert!(!session.running(&server()));
}

#[tokio::test]
async fn a_queued_session_is_told_once() {
    let world = World::new().await;
    let session = world.registry.register(KeyLength::Short).unwrap();
    let (process_id, secret) = session.key();
    session.queued();
    world.registry.cancel(process_id, secret).await;
    session.canceled().await;
    // Dispatched in the same moment: it isn't sent.
    assert!(session.running(&server()));
    assert!(!session.running(&server()));
    session.queued();
    assert!(
        is_waiting(async {
            session.canceled().await;
            true
        })
        .await
    );
}

#[tokio::test]
async fn a_wrong_key_does_nothing() {
    let world = World::new().await;
    let session = world.registry.register(KeyLength::Short).unwrap();
    let (process_id, secret) = session.key();
    session.queued();
    let mut wrong = secret.to_vec();
    wrong[3] ^= 1;
    for (process_id, secret) in
        [(process_id, &wrong[..]), (process_id, &secret[..3]), (process_id, &[]), (process_id ^ 1, secret)]
    {
        world.registry.cancel(process_id, secret).await;
    }
    assert!(!session.running(&server()));
}

#[tokio::test]
async fn a_running_statement_is_canceled_by_the_key_of_its_server() {
    let world = World::new().await;
    let session = world.registry.register(KeyLength::Short).unwrap();
    let (process_id, secret) = session.key();
    session.running(&server());
    let script = async {
        let (_closed, request) = world.request().await;
        let mut expected = BytesMut::new();
        write_cancel(&mut expected, SERVER_KEY.0, SERVER_KEY.1);
        assert_eq!(request, expected);
    };
    tokio::join!(world.registry.cancel(process_id, secret), script);
    session.idle();
    assert!(session.settled().await);
}

#[tokio::test]
async fn a_server_connection_is_held_while_a_cancel_is_under_way() {
    let world = World::new().await;
    let session = world.registry.register(KeyLength::Short).unwrap();
    let (process_id, secret) = session.key();
    session.running(&server());
    let script = async {
        let (stream, _) = world.request().await;
        // The statement has ended, the cancel is still on its way.
        session.idle();
        assert!(is_waiting(session.settled()).await);
        drop(stream);
        assert!(session.settled().await);
    };
    tokio::join!(world.registry.cancel(process_id, secret), script);
}

#[tokio::test]
async fn a_second_cancel_of_the_same_statement_makes_no_second_connection() {
    let world = World::new().await;
    let session = world.registry.register(KeyLength::Short).unwrap();
    let (process_id, secret) = session.key();
    session.running(&server());
    let script = async {
        let (stream, _) = world.request().await;
        world.registry.cancel(process_id, secret).await;
        drop(stream);
    };
    tokio::join!(world.registry.cancel(process_id, secret), script);
    assert!(session.settled().await);
}

#[tokio::test]
async fn an_unconfirmed_cancel_condemns_the_server_connection_once() {
    let world = World::new().await;
    let session = world.registry.register(KeyLength::Short).unwrap();
    let (process_id, secret) = session.key();
    session.running(&server());
    let script = async {
        let (stream, _) = world.request().await;
        // A reset instead of an orderly end.
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    };
    tokio::join!(world.registry.cancel(process_id, secret), script);
    session.idle();
    assert!(!session.settled().await);
    assert!(session.settled().await);
}

#[tokio::test]
async fn a_cancel_that_is_given_up_half_way_condemns_the_server_connection() {
    let world = World::new().await;
    let session = world.registry.register(KeyLength::Short).unwrap();
    let (process_id, secret) = session.key();
    session.running(&server());
    tokio::select! {
        () = world.registry.cancel(process_id, secret) => panic!("the server has not answered"),
        _ = world.request() => {}
    }
    assert!(!session.settled().await);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_keeps_a_cancel_connection_open_is_waited_for_within_a_bound() {
    let world = World::new().await;
    let session = world.registry.register(KeyLength::Short).unwrap();
    let (process_id, secret) = session.key();
    session.running(&server());
    let start = tokio::time::Instant::now();
    // The connection is held open to the end.
    let (_, (_stream, _)) = tokio::join!(world.registry.cancel(process_id, secret), world.request());
    assert!(start.elapsed() >= SETTLE_LIMIT);
    assert!(!session.settled().await);
}

#[tokio::test]
async fn a_cancel_that_never_left_harms_nothing() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let registry = registry(1, port);
    let session = registry.register(KeyLength::Short).unwrap();
    let (process_id, secret) = session.key();
    session.running(&server());
    registry.cancel(process_id, secret).await;
    session.idle();
    assert!(session.settled().await);
}
