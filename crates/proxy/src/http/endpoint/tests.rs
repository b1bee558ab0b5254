//! Connections to an address that its name no longer stands for.

use std::sync::Mutex as Shared;

use tokio::net::TcpListener;

use super::*;

#[tokio::test]
async fn an_idle_connection_to_an_address_that_two_answers_lack_is_closed() {
    let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let second = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let meaning = Arc::new(Shared::new(vec![first.local_addr().unwrap()]));
    let asked = Arc::clone(&meaning);
    let lookup = Lookup::new(move |_, _| {
        let answer = asked.lock().unwrap().clone();
        Box::pin(async move { Ok(answer) })
    });
    let reach = Reach {
        gate: "site".into(),
        speaks: Speaks::Http1,
        tls: None,
        connect_timeout: Duration::from_secs(5),
        lookup,
        dns_ttl: Duration::from_nanos(1),
        keepalive: Keepalive::default(),
        fields_max: 100,
        idle_max: 4,
    };
    let endpoint = Endpoint::new(Address::inet("site.example", 80), reach);
    let lease = endpoint.lease(Instant::now(), Wish::Any, true).await.unwrap();
    lease.give_back();
    endpoint.close_old();
    assert_eq!(endpoint.idle(), 1);
    *meaning.lock().unwrap() = vec![second.local_addr().unwrap()];
    endpoint.follow().await;
    endpoint.close_old();
    assert_eq!(endpoint.idle(), 1, "one answer may be short");
    endpoint.follow().await;
    endpoint.close_old();
    assert_eq!(endpoint.idle(), 0);
}
