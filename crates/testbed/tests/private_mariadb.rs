//! A private MariaDB runs, answers, and leaves nothing behind.

// Helpers of tests are outside of `#[test]` functions, where clippy.toml's allowances don't reach.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use testbed::mariadb::PrivateMariadb;

#[test]
fn a_server_answers_with_its_options_and_leaves_nothing_behind() {
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
fn a_server_that_does_not_start_shows_its_log() {
    let error = PrivateMariadb::start(&["--no-such-option"]).unwrap_err().to_string();
    assert!(error.contains("no-such-option"), "{error}");
}
