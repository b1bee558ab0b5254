//! Users that get in: by relay, by a users file, by `auth_query`, and what the gate does in their name
//! afterwards. Each against a real server, with wrong, expired, renamed and unknown users:
//!
//! - the server, by relay: `by_relay_the_server_decides`;
//! - a file of SCRAM secrets: `a_users_file_with_scram_secrets_needs_no_password` (the server finds
//!   expired and renamed users);
//! - a file of passwords and md5 hashes:
//!   `a_users_file_with_passwords_and_hashes_serves_every_method_of_the_server`;
//! - a file, without a challenge: `trust_lets_in_whom_the_file_knows`;
//! - `auth_query`: `auth_query_hears_of_every_change_at_once`, also with connections in the pool;
//! - keys taken over, without a login: `keys_of_an_old_password_fit_no_more`, and for the other users
//!   `keys_of_who_has_expired_was_renamed_or_may_not_log_in_open_nothing`.

// Helpers of tests are outside of `#[test]` functions, where clippy.toml's allowances don't reach.
#![allow(clippy::unwrap_used, clippy::panic)]

mod auth_stage;
mod support;

use auth_stage::{DENIED, Stage};
use bytes::BytesMut;
use support::raw::{Raw, startup};
use support::{Stack, python};
use wire::postgres::authentication::{SaslInitial, write_sasl_initial};
use wire::postgres::backend::{Authentication, parse_authentication, parse_error};
use wire::postgres::scram::{ServerFirst, parse_server_first};

/// Lines of configuration for a users file.
const SCRAM: &str = "auth = \"scram-sha-256\"";

#[tokio::test]
async fn by_relay_the_server_decides() {
    let stage = Stage::start(&[], "");
    stage.sql("CREATE ROLE r_ann LOGIN PASSWORD 'right'; CREATE ROLE r_old LOGIN PASSWORD 'right' VALID UNTIL '2001-01-01'");
    assert_eq!(stage.who("r_ann", "right").await, "r_ann");
    assert_eq!(stage.refused("r_ann", "wrong").await, DENIED);
    assert_eq!(stage.refused("r_old", "right").await, DENIED);
    assert_eq!(stage.refused("r_none", "right").await, DENIED);
    stage.sql("ALTER ROLE r_ann RENAME TO r_eve");
    assert_eq!(stage.refused("r_ann", "right").await, DENIED);
    assert_eq!(stage.who("r_eve", "right").await, "r_eve");
}

#[tokio::test]
async fn a_users_file_with_scram_secrets_needs_no_password() {
    let stage = Stage::with_secrets("f", &[SCRAM]);
    assert_eq!(stage.who("f_ann", "right").await, "f_ann");
    assert_eq!(stage.refused("f_ann", "wrong").await, DENIED);
    assert_eq!(stage.refused("f_ann", "").await, DENIED);
    // Expired and renamed the server knows, which the gate logs in to before it lets anybody in.
    assert_eq!(stage.refused("f_old", "right").await, DENIED);
    assert_eq!(stage.refused("f_bob", "right").await, DENIED);
    assert!(stage.log().contains("another SCRAM secret"), "{}", stage.log());
    // The server knows them, the file doesn't.
    assert_eq!(stage.refused("f_rob", "right").await, DENIED);
    assert_eq!(stage.refused("f_none", "right").await, DENIED);
    stage.assert_nothing_leaked();
}

#[tokio::test]
async fn a_users_file_with_passwords_and_hashes_serves_every_method_of_the_server() {
    let stage = Stage::start(&["auth = \"md5\""], "\"nobody\" \"yet\"\n");
    stage.sql(
        "CREATE ROLE md5_user LOGIN PASSWORD 'right'; CREATE ROLE clear_user LOGIN PASSWORD 'right';
         SET password_encryption = 'md5'; CREATE ROLE md5_hash LOGIN PASSWORD 'right'",
    );
    let hash = stage.sql("SELECT rolpassword FROM pg_authid WHERE rolname = 'md5_hash'");
    stage.write_users(&format!(
        "\"md5_user\" \"right\"\n\"clear_user\" \"right\"\n\"md5_hash\" \"{hash}\"\n\"none\" \"\"\n"
    ));
    let gate = stage.gate(&[]);
    for user in ["md5_user", "clear_user", "md5_hash"] {
        assert_eq!(gate.who(user, "right").await, user);
        assert_eq!(gate.refused(user, "wrong").await, DENIED);
    }
    assert_eq!(gate.refused("none", "").await, DENIED);
    assert_eq!(gate.refused("unknown", "right").await, DENIED);
    // What the file knows nothing of, the server finds out when the gate logs in.
    stage.sql(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename ~ '^(md5|clear)_';
         ALTER ROLE md5_user VALID UNTIL '2001-01-01'; ALTER ROLE clear_user VALID UNTIL '2001-01-01';
         ALTER ROLE md5_hash RENAME TO md5_renamed",
    );
    let gate = stage.gate(&[]);
    for user in ["md5_user", "clear_user", "md5_renamed"] {
        assert_eq!(gate.refused(user, "right").await, DENIED, "{user}");
    }
    // Of a name that it doesn't know any more it asks SCRAM, for which a hash won't do.
    assert_eq!(gate.refused("md5_hash", "right").await, "28000");
    gate.assert_nothing_leaked();
}

#[tokio::test]
async fn trust_lets_in_whom_the_file_knows() {
    let known = ["t_ann", "t_gone", "t_old", "t_eve"].map(|user| format!("\"{user}\" \"right\"\n"));
    let stage = Stage::start(&["auth = \"trust\""], &known.concat());
    stage.sql(
        "CREATE ROLE t_ann LOGIN PASSWORD 'right'; CREATE ROLE t_bob LOGIN PASSWORD 'right';
         CREATE ROLE t_old LOGIN PASSWORD 'right' VALID UNTIL '2001-01-01';
         CREATE ROLE t_eve LOGIN PASSWORD 'right'; ALTER ROLE t_eve RENAME TO t_renamed",
    );
    for user in ["t_old", "t_eve", "t_renamed"] {
        assert_eq!(stage.refused(user, "right").await, DENIED, "{user}");
    }
    assert_eq!(stage.who("t_ann", "whatever").await, "t_ann");
    assert_eq!(stage.refused("t_bob", "right").await, DENIED);
    assert_eq!(stage.refused("t_gone", "right").await, DENIED);
}

#[tokio::test]
async fn auth_query_hears_of_every_change_at_once() {
    let stage = Stage::with_query("q", &[SCRAM]);
    stage.sql(
        "CREATE ROLE q_ann LOGIN PASSWORD 'right'; CREATE ROLE q_old LOGIN PASSWORD 'right' VALID UNTIL '2001-01-01';
         CREATE ROLE q_now LOGIN PASSWORD 'right' VALID UNTIL '2999-01-01'; CREATE ROLE q_not NOLOGIN PASSWORD 'right';
         CREATE ROLE q_none LOGIN",
    );
    assert_eq!(stage.who("q_ann", "right").await, "q_ann");
    assert_eq!(stage.who("q_now", "right").await, "q_now");
    for (user, password) in
        [("q_ann", "wrong"), ("q_old", "right"), ("q_not", "right"), ("q_none", ""), ("q_unknown", "right")]
    {
        assert_eq!(stage.refused(user, password).await, DENIED, "{user}");
    }
    // Though there are connections of hers in a pool.
    stage.sql("ALTER ROLE q_now VALID UNTIL '2001-01-01'; ALTER ROLE q_ann PASSWORD 'new'");
    assert_eq!(stage.refused("q_now", "right").await, DENIED);
    assert_eq!(stage.refused("q_ann", "right").await, DENIED);
    assert_eq!(stage.who("q_ann", "new").await, "q_ann");
    stage.sql("ALTER ROLE q_ann RENAME TO q_eve");
    assert_eq!(stage.refused("q_ann", "new").await, DENIED);
    assert_eq!(stage.who("q_eve", "new").await, "q_eve");
    // One connection of its own, whatever was asked.
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'q_lookup'";
    assert_eq!(stage.sql(sql), "1");
    assert!(stage.metric("auth_queries_total{gate=\"postgres\",outcome=\"found\"}") >= 6.0);
    // It is opened again when it is lost.
    stage.sql("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = 'q_lookup'");
    assert_eq!(stage.who("q_eve", "new").await, "q_eve");
    stage.assert_nothing_leaked();
}

#[tokio::test]
async fn no_client_chooses_what_auth_query_means() {
    // An unqualified query, and everything that could bend it: a table, a function and an operator of the
    // same name in a schema that the client, the role and the database name first.
    let query = "auth_query = \"SELECT rolname, rolpassword FROM pg_authid WHERE rolname = $1\"";
    let stage = Stage::alone_with_query("e", &[SCRAM, query]);
    stage.sql(
        "CREATE ROLE e_victim LOGIN PASSWORD 'right'; CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO PUBLIC;
         CREATE VIEW evil.pg_authid AS SELECT name 'e_victim' AS rolname, text 'hacked' AS rolpassword;
         GRANT SELECT ON evil.pg_authid TO PUBLIC;
         CREATE FUNCTION evil.always(name, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
         CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = text, FUNCTION = evil.always);
         ALTER ROLE e_lookup SET search_path = evil, pg_catalog;
         ALTER ROLE e_lookup SET standard_conforming_strings = off;
         ALTER DATABASE postgres SET search_path = evil, pg_catalog",
    );
    let evil = "-c search_path=evil,pg_catalog -c standard_conforming_strings=off";
    assert_eq!(stage.refused_with("e_victim", "hacked", evil).await, DENIED);
    assert_eq!(stage.refused_with("e_victim' OR 'a' = 'a", "hacked", evil).await, DENIED);
    assert_eq!(stage.refused_with("$1", "right", evil).await, DENIED);
    stage.sql("ALTER DATABASE postgres RESET search_path");
    assert_eq!(stage.who("e_victim", "right").await, "e_victim");
}

#[tokio::test]
async fn who_cannot_be_looked_up_is_told_so() {
    let lines = [SCRAM, "auth_user = \"b_lookup\""];
    let stage = Stage::start(&lines, "\"b_lookup\" \"right\"\n\"b_ann\" \"right\"\n");
    stage.sql("CREATE ROLE b_ann LOGIN PASSWORD 'right'; CREATE ROLE b_lookup LOGIN PASSWORD 'right'");
    // b_lookup may not read pg_authid.
    assert_eq!(stage.refused("b_unknown", "right").await, "28000");
    // In the lines of failed logins, which repeated ones don't flood.
    let log = stage.log();
    let mut told = log.lines().filter(|line| line.contains("permission denied")).peekable();
    assert!(told.peek().is_some() && told.all(|line| line.contains("login failed")), "{log}");
    // Those of the file need no query.
    assert_eq!(stage.who("b_ann", "right").await, "b_ann");
}

#[tokio::test]
async fn keys_taken_over_from_a_proof_fill_the_pool_again() {
    let stage = Stage::with_secrets("k", &[SCRAM, "connections = 3"]);
    let first = stage.client("k_ann", "right").await.unwrap();
    let mut others = Vec::new();
    for _ in 0..8 {
        others.push(stage.client("k_ann", "right").await.unwrap());
    }
    // Nine sessions, and the pool has grown to its bound.
    stage.until("the pool has three connections", || stage.processes("k_ann") == 3).await;
    for round in 1..=3 {
        stage.sql("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = 'k_ann'");
        stage.until("the pool is whole again", || stage.processes("k_ann") == 3).await;
        // The sessions live on; nobody had to log in.
        for client in others.iter().chain([&first]) {
            auth_stage::ask_until_served(client).await;
        }
        let refills = stage.metric("pool_refills_total{gate=\"postgres\",outcome=\"success\"}");
        assert!(refills >= f64::from(3 * round), "{refills}");
    }
    let logins = stage.metric("logins_total{gate=\"postgres\",outcome=\"success\"}");
    assert_eq!(logins as u32, 9);
    stage.assert_nothing_leaked();
}

#[tokio::test]
async fn keys_of_an_old_password_fit_no_more() {
    let stage = Stage::with_secrets("o", &[SCRAM, "connections = 2"]);
    let session = stage.client("o_ann", "right").await.unwrap();
    stage.sql(
        "ALTER ROLE o_ann PASSWORD 'new';
         SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = 'o_ann'",
    );
    let failed = "pool_refills_total{gate=\"postgres\",outcome=\"failure\"}";
    stage.until("the server has refused the old keys", || stage.metric(failed) >= 1.0).await;
    // By the file the old password is right, but the server stores another secret.
    assert_eq!(stage.refused("o_ann", "right").await, DENIED);
    assert!(stage.log().contains("another SCRAM secret"), "{}", stage.log());
    assert_eq!(stage.refused("o_ann", "new").await, DENIED);
    assert_eq!(stage.processes("o_ann"), 0);
    drop(session);
}

#[tokio::test]
async fn keys_of_who_has_expired_was_renamed_or_may_not_log_in_open_nothing() {
    for (prefix, change, said) in [
        ("kx", "ALTER ROLE kx_ann VALID UNTIL '2001-01-01'", DENIED),
        ("kn", "ALTER ROLE kn_ann RENAME TO kn_eve", DENIED),
        ("kl", "ALTER ROLE kl_ann NOLOGIN", "28000"),
        ("kg", "DROP ROLE kg_ann", DENIED),
    ] {
        let stage = Stage::with_secrets(prefix, &[SCRAM, "connections = 2"]);
        let user = format!("{prefix}_ann");
        let session = stage.client(&user, "right").await.unwrap();
        // By its process, since a role that is gone has no name any more.
        let pid: i32 = session.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        stage.sql(change);
        stage.sql(&format!("SELECT pg_terminate_backend({pid}, 60000)"));
        let failed = "pool_refills_total{gate=\"postgres\",outcome=\"failure\"}";
        stage.until("the server has refused the keys", || stage.metric(failed) >= 1.0).await;
        let refilled = stage.metric("pool_refills_total{gate=\"postgres\",outcome=\"success\"}");
        assert_eq!(refilled as u32, 0, "{change}");
        // The secret in the file is right, and the server has the last word.
        assert_eq!(stage.refused(&user, "right").await, said, "{change}");
        stage.assert_nothing_leaked();
        drop(session);
    }
}

#[tokio::test]
async fn in_session_mode_each_client_has_a_login_of_its_own_by_the_gate() {
    let stage = Stage::with_secrets("s", &[SCRAM, "pooling = \"session\"", "connections = 2"]);
    let (a, b) =
        (stage.client("s_ann", "right").await.unwrap(), stage.client("s_ann", "right").await.unwrap());
    let pid = async |client: &tokio_postgres::Client| -> i32 {
        client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
    };
    assert_ne!(pid(&a).await, pid(&b).await);
    assert_eq!(stage.refused("s_ann", "wrong").await, DENIED);
}

#[tokio::test]
async fn a_session_without_a_connection_of_its_own_hears_what_the_server_would_say() {
    let stage = Stage::with_secrets("p", &[SCRAM, "connections = 1"]);
    stage.sql("ALTER ROLE p_ann SET timezone = 'Asia/Tokyo'");
    let show = async |client: &tokio_postgres::Client, name: &str| -> String {
        client.query_one(&format!("SELECT current_setting('{name}')"), &[]).await.unwrap().get(0)
    };
    let first = stage.client_with("p_ann", "right", |config| config.application_name("first")).await.unwrap();
    let second =
        stage.client_with("p_ann", "right", |config| config.application_name("second")).await.unwrap();
    let plain = stage.client("p_ann", "right").await.unwrap();
    let utc = stage.client_with("p_ann", "right", |config| config.options("-c timezone=UTC")).await;
    // The one of the budget, and the third login's, which had to be asked for what it hears: it is kept as
    // a spare.
    assert_eq!(stage.processes("p_ann"), 2);
    assert!(utc.is_err(), "the only connection belongs to others");
    for (client, name) in [(&first, "first"), (&second, "second"), (&plain, ""), (&first, "first")] {
        assert_eq!(show(client, "application_name").await, name);
        assert_eq!(show(client, "timezone").await, "Asia/Tokyo");
    }
}

#[tokio::test]
async fn a_reload_swaps_the_users_and_a_broken_file_changes_nothing() {
    let stage = Stage::with_secrets("rl", &[SCRAM]);
    let session = stage.client("rl_ann", "right").await.unwrap();
    stage.sql("CREATE ROLE rl_new LOGIN PASSWORD 'right'");
    assert_eq!(stage.refused("rl_new", "right").await, DENIED);
    stage.write_users("\"rl_new\" \"right\"\n\"rl_new\" \"twice\"\n");
    stage.hang_up();
    stage.until("the broken file is told", || stage.log().contains("a second time")).await;
    assert_eq!(stage.who("rl_ann", "right").await, "rl_ann");
    // As a program leaves it that is about to write it.
    stage.write_users("; users\n");
    stage.hang_up();
    stage.until("the empty file is told", || stage.log().contains("names no user")).await;
    assert_eq!(stage.who("rl_ann", "right").await, "rl_ann");
    stage.write_users("\"rl_new\" \"right\"\n");
    stage.hang_up();
    support::until("the new user is let in", async || stage.client("rl_new", "right").await.is_ok()).await;
    // A user that isn't in the file any more can't log in; a session that is open stays.
    assert_eq!(stage.refused("rl_ann", "right").await, DENIED);
    assert_eq!(auth_stage::who_is(&session).await, "rl_ann");
}

#[test]
fn asyncpg_works_where_the_gate_authenticates() {
    println!("{}", Stack::start_authenticating().check(python("asyncpg")));
}

#[test]
fn psycopg_works_where_the_gate_authenticates() {
    println!("{}", Stack::start_authenticating().check(python("psycopg")));
}

/// What the gate asks of a user, up to SCRAM's challenge.
fn challenge(stage: &Stage, user: &str) -> (Vec<String>, Vec<u8>, u32) {
    let mut raw = Raw::connect(stage.port());
    assert!(raw.send(&startup(user)));
    let (tag, body) = raw.read().unwrap();
    assert_eq!(tag, b'R', "{user}");
    let Ok(Authentication::Sasl { mechanisms }) = parse_authentication(&body) else {
        panic!("SASL is asked for")
    };
    let mut out = BytesMut::new();
    let initial = SaslInitial { mechanism: b"SCRAM-SHA-256", data: Some(b"n,,n=,r=abcdefgh") };
    write_sasl_initial(&mut out, &initial);
    assert!(raw.send(&out));
    let (_, body) = raw.read().unwrap();
    let Ok(Authentication::SaslContinue(data)) = parse_authentication(&body) else { panic!("a challenge") };
    let ServerFirst { salt, iterations, .. } = parse_server_first(data).unwrap();
    (mechanisms.iter().map(|name| (*name).to_owned()).collect(), salt, iterations)
}

#[tokio::test]
async fn nobody_learns_which_users_exist() {
    let stage = Stage::with_secrets("u", &[SCRAM]);
    let (mechanisms, salt, iterations) = challenge(&stage, "u_ann");
    let unknown = challenge(&stage, "u_unknown");
    assert_eq!((&unknown.0, unknown.1.len(), unknown.2), (&mechanisms, salt.len(), iterations));
    assert_ne!(unknown.1, salt);
    // The same again, as a stored salt would be; another for another user.
    assert_eq!(challenge(&stage, "u_unknown"), unknown);
    assert_ne!(challenge(&stage, "u_stranger").1, unknown.1);
    // Another process has the same for both, as after a restart.
    let another = stage.gate(&[]);
    assert_eq!(["u_ann", "u_unknown"].map(|user| challenge(&another, user).1), [salt, unknown.1]);
    let said =
        async |user: &str| stage.client(user, "wrong").await.err().unwrap().to_string().replace(user, "?");
    assert_eq!(said("u_ann").await, said("u_unknown").await);
}

#[tokio::test]
async fn an_address_that_fails_too_often_waits_and_nobody_else_does() {
    let stage = Stage::with_secrets("l", &[SCRAM, "login_failures_max = 3"]);
    let session = stage.client("l_ann", "right").await.unwrap();
    for _ in 0..3 {
        assert_eq!(stage.refused("l_ann", "wrong").await, DENIED);
    }
    assert_eq!(stage.refused("l_ann", "wrong").await, "53300");
    assert_eq!(stage.refused("l_ann", "right").await, "53300");
    // Other addresses, and sessions that are open, don't notice.
    assert_eq!(stage.who_from("127.0.0.2", "l_ann", "right").await, "l_ann");
    assert_eq!(auth_stage::who_is(&session).await, "l_ann");
    assert_eq!(stage.metric("login_failures_total{gate=\"postgres\",reason=\"denied\"}") as u32, 3);
    assert!(stage.metric("login_failures_total{gate=\"postgres\",reason=\"limited\"}") >= 2.0);
}

#[tokio::test]
async fn the_bound_holds_for_relayed_logins_too() {
    let stage = Stage::start(&["login_failures_max = 2"], "");
    stage.sql("CREATE ROLE rx_ann LOGIN PASSWORD 'right'");
    for _ in 0..2 {
        assert_eq!(stage.refused("rx_ann", "wrong").await, DENIED);
    }
    assert_eq!(stage.refused("rx_ann", "right").await, "53300");
}

#[tokio::test]
async fn a_login_that_never_ends_holds_up_nobody_and_is_ended() {
    let halves = |stage: &Stage| -> Vec<Raw> {
        let mut halves: Vec<_> = (0..20).map(|_| Raw::connect(stage.port())).collect();
        for half in &mut halves {
            assert!(half.send(&startup("h_ann")));
            assert_eq!(half.read().unwrap().0, b'R');
        }
        halves
    };
    let stage = Stage::with_secrets("h", &[SCRAM, "logins_max = 1"]);
    // A client that had to wait for the end of these would wait for good.
    let patient = stage.gate(&["login_timeout = \"1h\""]);
    let unfinished = halves(&patient);
    assert_eq!(patient.who("h_ann", "right").await, "h_ann");
    drop(unfinished);

    let impatient = stage.gate(&["login_timeout = \"2s\""]);
    for mut half in halves(&impatient) {
        let (tag, body) = half.read().unwrap();
        assert_eq!((tag, parse_error(&body).code()), (b'E', "57014"));
    }
    assert_eq!(impatient.metric("login_failures_total{gate=\"postgres\",reason=\"timeout\"}") as u32, 20);
}

#[test]
fn a_users_file_that_everybody_may_read_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let users = auth_stage::users_file(directory.path(), "\"ann\" \"secret\"\n", 0o644);
    let config = directory.path().join("gatekeeper.toml");
    let text =
        format!("[[gate]]\nupstream = \"127.0.0.1:5432\"\n{SCRAM}\nusers_file = \"{}\"\n", users.display());
    std::fs::write(&config, text).unwrap();
    let said = |command: &[&str]| {
        let output =
            std::process::Command::new(env!("CARGO_BIN_EXE_gatekeeper")).args(command).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let path = config.to_str().unwrap();
    for command in [&["check", path][..], &["run", "--config", path]] {
        let (code, text) = said(command);
        assert_eq!(code, Some(2), "{text}");
        let expected = format!(
            "{:?}: holds secrets and is open to everybody (mode 644); chmod 600",
            users.display().to_string()
        );
        assert!(text.contains(&expected) && !text.contains("secret\""), "{text}");
        assert!(text.contains(&format!("{path}:4: gate: users_file = ")), "{text}");
    }
    // Beside other errors, too.
    let right = std::fs::read_to_string(&config).unwrap();
    for (lines, other) in
        [("queue_max = -1\n", ":5: gate: queue_max = -1: "), ("queue_max 1\n", ":5: isn't TOML")]
    {
        std::fs::write(&config, format!("{right}{lines}")).unwrap();
        let (code, text) = said(&["check", path]);
        assert!(code == Some(2) && text.contains("(mode 644); chmod 600") && text.contains(other), "{text}");
    }
    std::fs::write(&config, right).unwrap();
    auth_stage::users_file(directory.path(), "\"ann\" \"secret\"\nbob secret\n", 0o600);
    let (code, text) = said(&["check", path]);
    assert!(code == Some(2) && text.contains("users.txt\": line 2: does not begin with a user"), "{text}");
}
