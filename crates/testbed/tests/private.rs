//! A real PostgreSQL and a real MariaDB, started and stopped by the witness.

// Helpers of tests may panic too.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use testbed::mariadb::PrivateMariadb;
use testbed::postgres::{Authentication, Durability, PrivateServer, PrivateServerOptions};

fn connect_and_ask(dsn: &str, sql: &str) -> Result<String, tokio_postgres::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(dsn, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        Ok(client.query_one(sql, &[]).await?.get(0))
    })
}

#[test]
fn a_private_server_answers_over_tcp_and_socket_and_leaves_nothing_behind() {
    let server = PrivateServer::start(&PrivateServerOptions::default()).unwrap();
    assert_eq!(connect_and_ask(&server.url(), "SELECT 'tcp'::text").unwrap(), "tcp");
    assert_eq!(connect_and_ask(&server.dsn(), "SHOW fsync").unwrap(), "off");
    let socket = format!(
        "host={} port={} user={} password={} dbname=postgres",
        server.socket_dir().display(),
        server.port(),
        server.user(),
        server.password()
    );
    assert_eq!(connect_and_ask(&socket, "SELECT 'socket'::text").unwrap(), "socket");
    assert!(server.processes().len() > 1);
    let (directory, pid, port) = (server.socket_dir().to_owned(), server.pid(), server.port());
    drop(server);
    assert!(!directory.exists());
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    std::net::TcpListener::bind(("127.0.0.1", port)).expect("the port is free again");
}

#[test]
fn a_wrong_password_is_refused_under_scram_and_under_md5() {
    for (authentication, stored) in [(Authentication::Scram, "SCRAM-SHA-256$"), (Authentication::Md5, "md5")]
    {
        let options = PrivateServerOptions { authentication, ..PrivateServerOptions::default() };
        let server = PrivateServer::start(&options).unwrap();
        let wrong = server.dsn().replace(server.password(), "wrong");
        assert!(connect_and_ask(&wrong, "SELECT 'in'::text").is_err());
        let kept = server.psql("SELECT rolpassword FROM pg_authid WHERE rolname = 'postgres'").unwrap();
        assert!(kept.starts_with(stored), "{kept}");
    }
}

#[test]
fn options_reach_the_server() {
    let cpu = testbed::allowed_cpus()[0];
    let options = PrivateServerOptions {
        authentication: Authentication::Trust,
        durability: Durability::Durable,
        max_connections: 33,
        cpu: Some(cpu),
        settings: vec![("work_mem".to_owned(), "3MB".to_owned())],
        ..PrivateServerOptions::default()
    };
    let server = PrivateServer::start(&options).unwrap();
    let no_password = server.dsn().replace(server.password(), "none");
    assert_eq!(connect_and_ask(&no_password, "SHOW max_connections").unwrap(), "33");
    assert_eq!(server.psql("SHOW fsync; SHOW work_mem").unwrap(), "on\n3MB");
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    assert!(status.contains(&format!("Cpus_allowed_list:\t{cpu}\n")), "{status}");
}

#[test]
fn a_server_that_does_not_start_shows_its_log() {
    let options = PrivateServerOptions {
        settings: vec![("shared_buffers".to_owned(), "much".to_owned())],
        ..PrivateServerOptions::default()
    };
    let error = PrivateServer::start(&options).unwrap_err().to_string();
    assert!(error.contains("shared_buffers"), "{error}");
}

#[test]
fn a_failing_script_reports_what_the_server_said() {
    let server = PrivateServer::start(&PrivateServerOptions::default()).unwrap();
    let error = server.psql("SELECT * FROM nowhere").unwrap_err().to_string();
    assert!(error.contains("nowhere"), "{error}");
}

#[test]
fn a_mariadb_answers_with_its_options_and_leaves_nothing_behind() {
    let server = PrivateMariadb::start(&["--max-allowed-packet=32M"]).unwrap();
    assert_eq!(server.query("SELECT @@max_allowed_packet, DATABASE()").unwrap(), "33554432\twitness");
    assert_eq!(
        server.query("SELECT GROUP_CONCAT(User ORDER BY User) FROM mysql.global_priv").unwrap(),
        "mariadb.sys,witness"
    );
    let error = server.query("SELECT * FROM nowhere").unwrap_err().to_string();
    assert!(error.contains("nowhere"), "{error}");
    let (pid, socket) = (server.pid(), server.socket());
    assert!(socket.exists());
    drop(server);
    assert!(!socket.parent().unwrap().exists() && !Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_mariadb_that_does_not_start_shows_its_log() {
    let error = PrivateMariadb::start(&["--no-such-option"]).unwrap_err().to_string();
    assert!(error.contains("no-such-option"), "{error}");
}
