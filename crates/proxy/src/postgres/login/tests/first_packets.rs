//! The first packets: versions, cancel keys, and TLS in all its modes, byte for byte.

use wire::postgres::startup::write_negotiate_protocol_version;

use super::*;

#[tokio::test]
async fn versions_newer_than_the_servers_and_options_are_negotiated_away() {
    let world = World::ordinary();
    const CASES: [(u32, &str, u32, &[&str]); 7] = [
        (3 << 16 | 2, "", 3 << 16, &[]),
        (3 << 16 | 1, "18.1", 3 << 16, &[]),
        (3 << 16, "18.1", 3 << 16, &["_pq_.a", "_pq_.b"]),
        (3 << 16 | 2, "18.1", 3 << 16 | 2, &["_pq_.a"]),
        (3 << 16 | 9999, "18.1", 3 << 16 | 2, &["_pq_.a"]),
        (3 << 16 | 2, "15.9", 3 << 16, &[]),
        (3 << 16 | 9999, "15.9", 3 << 16, &["_pq_.a"]),
    ];
    for (version, of_server, newest, options) in CASES {
        let mut reported = Parameters::default();
        reported.set("server_version", of_server);
        world.shared.spoken.learn(&reported);
        let (mut client, login) = world.client();
        let mut parameters = vec![("user", "ann")];
        parameters.extend(options.iter().map(|option| (*option, "1")));
        let mut expected = BytesMut::new();
        write_negotiate_protocol_version(&mut expected, newest, options);
        let talk = async {
            client.write_all(&startup(version, &parameters)).await.unwrap();
            assert_eq!(read(&mut client, expected.len()).await, expected);
            assert_eq!(read(&mut client, ACCEPT.len()).await, ACCEPT);
        };
        let script = async {
            let (mut server, seen) = world.accept().await;
            assert_eq!(seen, startup(3 << 16, &[("user", "ann")]));
            server.write_all(&[ACCEPT, GREETING].concat()).await.unwrap();
            server
        };
        assert!(tokio::join!(login, talk, script).0.is_some());
    }
}

#[tokio::test]
async fn a_server_that_speaks_another_protocol_is_asked_whether_it_is_postgresql() {
    let world = World::ordinary();
    // The beginning of MariaDB's greeting, and what a web server says to a start-up message.
    for said in [&b"\x5d\0\0\0\x0a5.5.5-10.11.6-MariaDB\0"[..], b"HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let (mut client, login) = world.client();
        let talk = async {
            client.write_all(&startup(3 << 16, &[("user", "ann")])).await.unwrap();
            let (mut server, _) = world.accept().await;
            server.write_all(said).await.unwrap();
            let heard = rest(&mut client).await;
            assert_eq!(fatal(&heard), "08P01");
            let heard = String::from_utf8_lossy(&heard).into_owned();
            let asks = "is this PostgreSQL? --protocol mysql is for MySQL and MariaDB";
            assert!(heard.contains(asks), "{heard}");
        };
        let (session, ()) = tokio::join!(login, talk);
        assert!(session.is_none());
    }
}
