//! Which address of a service's name is reached, and how often the name is looked up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Response;
use proxy::{Address, Lookup};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::site::{Client, full, gate, one_at_a_time, service};

/// An address that swallows packets: a listener that accepts nobody, whose backlog is full.
async fn blackhole() -> (SocketAddr, TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut filling = Vec::new();
    // Whether a packet is swallowed only its time tells. The kernel holds two or three connections.
    while let Ok(connected) = timeout(Duration::from_millis(500), TcpStream::connect(address)).await {
        filling.push(connected.unwrap());
        assert!(filling.len() < 100, "the backlog is never full");
    }
    (address, listener, filling)
}

/// A resolver that gives these addresses for every name, and counts how often it is asked.
fn meaning(addresses: Vec<SocketAddr>) -> (Lookup, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let lookup = Lookup::new(move |host, port| {
        assert_eq!((host, port), ("site.example", 80));
        counted.fetch_add(1, Ordering::SeqCst);
        let answer = addresses.clone();
        Box::pin(async move { Ok(answer) })
    });
    (lookup, asked)
}

#[tokio::test]
async fn an_address_that_swallows_packets_leaves_time_for_the_next() {
    let (swallows, _listener, _filling) = blackhole().await;
    let answers = service(async |_| Response::new(full("here"))).await;
    let (lookup, asked) = meaning(vec![swallows, answers]);
    let site = gate(one_at_a_time(), &[], |settings| {
        settings.upstream = vec![Address::inet("site.example", 80)];
        settings.lookup = lookup;
        settings.connect_timeout = Duration::from_secs(2);
        // Each request needs a connection of its own.
        settings.idle_max = 0;
    })
    .await;
    let mut client = Client::connect(&site).await;
    for _ in 0..2 {
        let told = client.get("/").await;
        assert_eq!((told.status, told.text()), (200, "here"));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1, "an answer is used for its time");
}

#[tokio::test]
async fn a_name_without_a_time_is_looked_up_for_every_connection() {
    let answers = service(async |_| Response::new(full("here"))).await;
    let (lookup, asked) = meaning(vec![answers]);
    let site = gate(one_at_a_time(), &[], |settings| {
        settings.upstream = vec![Address::inet("site.example", 80)];
        (settings.lookup, settings.dns_ttl, settings.idle_max) = (lookup, Duration::ZERO, 0);
    })
    .await;
    let mut client = Client::connect(&site).await;
    for expected in 1..=3 {
        assert_eq!(client.get("/").await.status, 200);
        assert_eq!(asked.load(Ordering::SeqCst), expected);
    }
}
