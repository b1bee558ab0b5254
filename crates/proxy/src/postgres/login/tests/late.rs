//! A gate that is short of processor time refuses what begins, and nothing that has begun.

use super::*;
use crate::postgres::Bound;
use crate::postgres::connection::serve;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long an answer may take. Only a hang takes so long.
const BOUND: Duration = Duration::from_secs(60);

const BEGIN: &[u8] = b"Q\0\0\0\x0aBEGIN\0";
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";
const ROLLBACK: &[u8] = b"Q\0\0\0\x0dROLLBACK\0";
const SELECT: &[u8] = b"Q\0\0\0\x0dSELECT 1\0";

/// A session that is being served, and the two ends that it stands between.
struct Talk {
    client: UnixStream,
    server: UnixStream,
    serving: JoinHandle<()>,
}

impl Talk {
    async fn begin(world: &World) -> Self {
        let (mut client, login) = world.client();
        let talk = async {
            client.write_all(&startup(3 << 16, &[("user", "ann")])).await.unwrap();
            read(&mut client, ASK_PASSWORD.len()).await;
            client.write_all(b"p\0\0\0\x07me\0").await.unwrap();
        };
        let (session, server, ()) = tokio::join!(login, world.accept_login(), talk);
        let serving = tokio::spawn(serve(Arc::clone(&world.shared), session.unwrap()));
        let mut talk = Self { client, server, serving };
        talk.until_ready().await;
        talk
    }

    async fn says(&mut self, words: &[u8]) {
        self.client.write_all(words).await.unwrap();
    }

    /// The tags of what the client hears up to ReadyForQuery, and the SQLSTATEs of errors among it.
    async fn until_ready(&mut self) -> (Vec<u8>, Vec<String>) {
        let (mut tags, mut codes) = (Vec::new(), Vec::new());
        while tags.last() != Some(&b'Z') {
            let header = timeout(BOUND, read(&mut self.client, 5)).await.expect("an answer");
            let length = u32::from_be_bytes(header[1..].try_into().unwrap()) as usize;
            let body = read(&mut self.client, length - 4).await;
            if header[0] == b'E' {
                codes.push(parse_error(&body).code().to_owned());
            }
            tags.push(header[0]);
        }
        (tags, codes)
    }

    /// A statement reaches the server, and its answer the client.
    async fn is_served(&mut self) {
        self.reaches_server(SELECT).await;
        self.server.write_all(b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I").await.unwrap();
        assert_eq!(self.until_ready().await, (b"CZ".to_vec(), vec![]));
    }

    async fn reaches_server(&mut self, words: &[u8]) {
        self.says(words).await;
        let read = timeout(BOUND, read(&mut self.server, words.len())).await;
        assert_eq!(read.expect("it is passed on"), words);
    }

    async fn end(self) {
        let Self { client, server, serving } = self;
        // The server goes first: what it still owes is not waited for.
        drop((server, client));
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn a_late_gate_refuses_what_begins_and_says_so_by_53300() {
    let world = World::ordinary();
    let mut talk = Talk::begin(&world).await;
    world.shared.lateness.make_late();
    // The first request of a session, whose login was dearer than it is.
    talk.is_served().await;
    talk.says(SELECT).await;
    assert_eq!(talk.until_ready().await, (b"EZ".to_vec(), vec!["53300".to_owned()]));
    assert_eq!(world.shared.lateness.view().refused, 1);
    world.shared.lateness.look("in time", 1);
    talk.reaches_server(SELECT).await;
    talk.end().await;
}

#[tokio::test]
async fn a_late_gate_passes_on_what_releases_the_locks_of_a_prepared_transaction() {
    let world = World::ordinary();
    let mut talk = Talk::begin(&world).await;
    talk.is_served().await;
    world.shared.lateness.make_late();
    talk.reaches_server(b"Q\0\0\0\x18COMMIT PREPARED 'a'\0").await;
    assert_eq!(world.shared.lateness.view().refused, 0);
    talk.end().await;
}

#[tokio::test]
async fn a_late_gate_serves_a_transaction_that_was_begun() {
    let world = World::ordinary();
    let mut talk = Talk::begin(&world).await;
    talk.is_served().await;
    talk.says(BEGIN).await;
    talk.until_ready().await;
    world.shared.lateness.make_late();
    talk.says(SELECT).await;
    // The transaction that the client was told of begins on the server.
    assert_eq!(read(&mut talk.server, 1).await, b"P");
    assert_eq!(world.shared.lateness.view().refused, 0);
    talk.end().await;
}

#[tokio::test]
async fn the_gate_hears_how_long_what_a_client_sent_has_waited() {
    let world = World::ordinary();
    let mut talk = Talk::begin(&world).await;
    for words in [BEGIN, COMMIT, BEGIN, ROLLBACK] {
        talk.says(words).await;
        talk.until_ready().await;
    }
    assert_eq!(world.shared.lateness.asked(), 4);
    talk.end().await;
}

#[tokio::test]
async fn the_gate_hears_of_the_clients_that_its_listener_lets_in() {
    let mut settings = Settings::new(Address::Unix("/nowhere".into()));
    (settings.listen, settings.ask_cores) = (Address::inet("127.0.0.1", 0), false);
    let (trigger, shutdown) = shutdown();
    let bound = Bound::new(settings, Driver::new("test", policy(), 1), shutdown).await.unwrap();
    let (address, shared) = (bound.listener.address().to_string(), Arc::clone(&bound.shared));
    let gone = TcpStream::connect(&address).await.unwrap();
    gone.set_zero_linger().unwrap();
    drop(gone);
    let talk = async {
        let mut client = TcpStream::connect(&address).await.unwrap();
        client.write_all(SSL_REQUEST).await.unwrap();
        assert_eq!(read(&mut client, 1).await, b"N");
        drop(client);
        trigger.drain();
    };
    let (ran, ()) = tokio::join!(bound.run(), talk);
    ran.unwrap();
    assert_eq!(shared.lateness.view().gone, 1);
}
