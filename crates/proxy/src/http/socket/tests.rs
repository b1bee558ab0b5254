//! Tests of a client's socket.

use std::pin::pin;

use tokio::net::TcpStream;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::clock::Clock;

fn lateness() -> Arc<Lateness> {
    Arc::new(Lateness::new(Clock::start()))
}

async fn pair() -> (TcpStream, Shared) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (client, Shared::Tcp(Arc::new(server)))
}

/// Reads once, after its task was called for what a client does meanwhile.
async fn read(socket: &mut Socket, client: impl FnOnce()) -> io::Result<usize> {
    let mut bytes = [0; 64];
    let mut client = Some(client);
    let mut reading = pin!(socket.read(&mut bytes));
    poll_fn(|context| {
        let polled = reading.as_mut().poll(context);
        if let Some(client) = client.take() {
            assert!(polled.is_pending());
            client();
        }
        polled
    })
    .await
}

#[tokio::test]
async fn a_late_gate_reads_nothing_between_two_requests_and_goes_on_within_one() {
    let (client, shared) = pair().await;
    let (mut socket, watched) = Socket::plain(shared, Duration::from_secs(1), Lateness::by_an_hour());
    let say = || assert_eq!(client.try_write(b"GET").unwrap(), 3);
    let asked = watched.under_way();
    assert_eq!(read(&mut socket, say).await.unwrap(), 3);
    drop(asked);
    assert!(read(&mut socket, say).await.is_err());
    drop((socket, watched));
    client.readable().await.unwrap();
    let ended = client.try_read(&mut [0; 8]).unwrap_err();
    assert_eq!(ended.kind(), io::ErrorKind::ConnectionReset, "nothing of the request was read");
}

#[tokio::test]
async fn the_first_request_of_a_newcomer_is_read_however_late_the_gate_is() {
    let (client, shared) = pair().await;
    let (mut socket, watched) = Socket::plain(shared, Duration::from_secs(1), Lateness::by_an_hour());
    let say = || assert_eq!(client.try_write(b"GET").unwrap(), 3);
    for _ in 0..100 {
        assert_eq!(read(&mut socket, say).await.unwrap(), 3, "a head that comes in pieces");
    }
    assert!(!watched.take_last() && !watched.take_refused());
}

#[tokio::test]
async fn what_has_come_with_a_connection_is_read_before_the_poller_tells_of_it() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    io::Write::write_all(&mut client, b"GET / HTTP/1.1\r\n").unwrap();
    let (server, _) = listener.accept().unwrap();
    // What was sent over loopback is there once it is sent.
    server.set_nonblocking(true).unwrap();
    let shared = Shared::Tcp(Arc::new(TcpStream::from_std(server).unwrap()));
    let (mut socket, _watched) = Socket::plain(shared, Duration::from_secs(1), lateness());
    let mut context = Context::from_waker(std::task::Waker::noop());
    let mut read = |room: usize| {
        let mut bytes = vec![0; room];
        let mut buffer = ReadBuf::new(&mut bytes);
        let polled = Pin::new(&mut socket).poll_read(&mut context, &mut buffer);
        polled.map(|read| read.map(|()| buffer.filled().len()).unwrap())
    };
    assert_eq!([read(3), read(3), read(64)], [3, 3, 10].map(Poll::Ready));
    assert_eq!(read(64), Poll::Pending);
    drop(client);
}

#[tokio::test]
async fn a_connection_of_several_requests_is_never_closed_for_what_comes_over_it() {
    let (client, shared) = pair().await;
    let (mut socket, watched) = Socket::plain(shared, Duration::from_secs(1), Lateness::by_an_hour());
    watched.share();
    let say = || assert_eq!(client.try_write(b"GET").unwrap(), 3);
    assert_eq!(read(&mut socket, say).await.unwrap(), 3);
}

#[tokio::test]
async fn of_a_client_that_has_reset_its_connection_nothing_is_read() {
    let (client, shared) = pair().await;
    let lateness = lateness();
    let (mut socket, _watched) = Socket::plain(shared, Duration::from_secs(1), Arc::clone(&lateness));
    let leave = || {
        assert_eq!(client.try_write(b"GET").unwrap(), 3);
        client.set_zero_linger().unwrap();
        drop(client);
    };
    assert!(read(&mut socket, leave).await.is_err());
    assert_eq!(lateness.view().gone, 1);
}

#[tokio::test]
async fn a_client_that_has_gone_is_noticed_behind_what_nobody_has_read() {
    let (mut client, shared) = pair().await;
    let (mut socket, watched) = Socket::plain(shared, Duration::from_secs(1), lateness());
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut waiting = pin!(watched.gone());
    let mut gone = poll_fn(|context| {
        let polled = waiting.as_mut().poll(context);
        // As hyper does behind each of its turns.
        let _ = Pin::new(&mut socket).poll_flush(context);
        polled
    });
    let early = tokio::time::timeout(Duration::from_millis(50), &mut gone).await;
    assert!(early.is_err(), "bytes that nobody has read aren't the end");
    client.write_all(b"more").await.unwrap();
    drop(client);
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("noticed");
}
