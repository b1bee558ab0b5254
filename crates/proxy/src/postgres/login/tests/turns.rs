//! Places among the logins: a client that says nothing holds up its own address, and nobody else.

use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::stream::Keepalive;

/// A client of the network's, and its login.
async fn network_client(world: &World) -> (TcpStream, impl Future<Output = Option<LoggedIn>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let ours = listener.accept().await.unwrap().0;
    (client, login(&world.shared, Stream::tcp(ours, &Keepalive::default()).unwrap()))
}

#[tokio::test]
async fn logins_that_hang_hold_up_nobody_from_elsewhere() {
    let world = World::new(|settings| settings.logins_max = 4);
    let words = startup(3 << 16, &[("user", "ann")]);
    let mut logins = tokio::task::JoinSet::new();
    let mut hanging = Vec::new();
    for _ in 0..6 {
        let shared = Arc::clone(&world.shared);
        let (mut client, ours) = UnixStream::pair().unwrap();
        client.write_all(&words).await.unwrap();
        logins.spawn(async move { login(&shared, Stream::unix(ours)).await });
        hanging.push(client);
    }
    // Three of them reach the server, and leave it without an answer.
    let mut servers = Vec::new();
    for _ in 0..3 {
        let (mut server, _) = world.accept().await;
        server.write_all(ASK_PASSWORD).await.unwrap();
        servers.push(server);
    }
    let (mut client, login) = network_client(&world).await;
    let talk = async {
        client.write_all(&words).await.unwrap();
        assert_eq!(read(&mut client, ASK_PASSWORD.len()).await, ASK_PASSWORD);
        client.write_all(b"p\0\0\0\x07me\0").await.unwrap();
    };
    let (session, _server, ()) = tokio::join!(login, world.accept_login(), talk);
    assert!(session.is_some());
    logins.shutdown().await;
    assert_eq!(world.shared.logins.taken(), 0);
}
