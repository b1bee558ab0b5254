//! `gatekeeper users import`: a users file from the accounts of a real server.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};

use testbed::mariadb::PrivateMariadb;

use crate::session::{Secret, Session, Told};
use crate::stage::{Stage, capabilities};
use crate::support::Gate;

/// What the command says. The password comes in the environment.
pub(crate) fn import(args: &[&str], user: &str, password: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
    command.args(["users", "import", "--user", user]).args(args).env("MYSQL_PWD", password);
    command.stdin(Stdio::null()).output().unwrap()
}

/// What the command prints, or says of an error.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The accounts of a test, whose names begin with these letters: all tests share the server.
fn create_accounts(stage: &Stage, of: &str) {
    let own = [
        ("_reader", "BY 'asks'"),
        ("_ann", "BY 'one'"),
        ("_\"q'", "BY 'two'"),
        ("_open", "BY ''"),
        ("_shut", "BY 'one' ACCOUNT LOCK"),
        ("_closed", "VIA mysql_native_password USING 'invalid'"),
        ("_curved", "VIA ed25519 USING PASSWORD('one')"),
        ("_two", "BY 'one'"),
        ("_tls", "BY 'one' REQUIRE SSL"),
        ("_cipher", "BY 'one' REQUIRE CIPHER 'TLS_AES_256_GCM_SHA384'"),
        ("_certified", "BY 'one' REQUIRE X509"),
        ("_issued", "BY 'one' REQUIRE ISSUER '/CN=one'"),
        ("_stale", "BY 'one' PASSWORD EXPIRE"),
        ("_fresh", "BY 'one' PASSWORD EXPIRE INTERVAL 1 DAY"),
        ("_either", "VIA ed25519 USING PASSWORD('other') OR mysql_native_password USING PASSWORD('four')"),
    ];
    for (name, identified) in own {
        let user = format!("`{of}{name}`@'%'");
        let create = format!("CREATE OR REPLACE USER {user} IDENTIFIED {identified}");
        stage.server.query(&format!("{create}; GRANT ALL ON witness.* TO {user}")).unwrap();
    }
    let more = format!(
        "GRANT SELECT ON mysql.user TO {of}_reader@'%';
        GRANT SELECT ON mysql.global_priv TO {of}_reader@'%';
        CREATE OR REPLACE USER {of}_near@localhost IDENTIFIED BY 'three';
        GRANT ALL ON witness.* TO {of}_near@localhost;
        CREATE OR REPLACE USER {of}_local@localhost IDENTIFIED VIA unix_socket;
        CREATE OR REPLACE USER {of}_two@'192.0.2.%' IDENTIFIED BY 'two';
        CREATE OR REPLACE ROLE {of}_role"
    );
    stage.server.query(&more).unwrap();
}

#[test]
fn clients_log_in_through_a_gate_with_a_users_file_made_from_the_servers_accounts() {
    let stage = Stage::start(&[], "");
    create_accounts(&stage, "in");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users.txt");
    let upstream = format!("unix:{}", stage.server.socket().display());
    let args = ["--upstream", &upstream, "--output", file.to_str().unwrap()];
    let told = import(&args, "in_reader", "asks");
    assert_eq!((told.status.code(), text(&told.stderr)), (Some(0), String::new()));
    assert!(text(&told.stdout).contains("more have comments"), "{}", text(&told.stdout));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    let listen = directory.path().join("gate.sock");
    let users_file = format!("users_file = {:?}", file.display().to_string());
    let gate = Gate::start_between(
        &format!("unix:{}", listen.display()),
        &upstream,
        &["protocol = \"mysql\"".to_owned(), users_file],
    );
    let login = |user: &str, password: &str| -> Result<String, Told> {
        let stream = UnixStream::connect(&listen).unwrap();
        let mut session = Session::login_over(stream, (user, Secret::Password(password)), capabilities())?;
        Ok(session.query("SELECT SUBSTRING_INDEX(USER(), '@', 1)").rows())
    };
    let users = [("in_ann", "one"), ("in_\"q'", "two"), ("in_near", "three"), ("in_either", "four")];
    for (user, password) in users {
        assert_eq!(login(user, password).as_deref(), Ok(user));
        assert_eq!(login(user, "guess").unwrap_err().code, 1045);
    }
    // The server's own answers.
    for (user, code) in [("in_shut", 4151), ("in_stale", 1820), ("in_tls", 1045), ("in_certified", 1045)] {
        assert_eq!(login(user, "one").unwrap_err().code, code, "{user}");
    }
    for user in ["in_open", "in_closed", "in_curved", "in_local", "in_two"] {
        for password in ["", "one", "invalid"] {
            assert_eq!(login(user, password).unwrap_err().code, 1045, "{user}");
        }
    }
    gate.assert_alive();
}

#[test]
fn an_account_that_a_gate_cannot_let_in_has_a_comment_with_the_reason() {
    let stage = Stage::start(&[], "");
    create_accounts(&stage, "no");
    let upstream = format!("unix:{}", stage.server.socket().display());
    let told = import(&["--upstream", &upstream], "no_reader", "asks");
    assert_eq!((told.status.code(), text(&told.stderr)), (Some(0), String::new()));
    let told = text(&told.stdout);
    for line in [
        "; \"no_near\" may come from localhost only, which must be the gate.",
        "; \"no_open\" (%) has no password. To let everybody in so, remove the semicolon:",
        "; \"no_open\" \"\"",
        "; \"no_closed\" (%) is closed: no password fits what the server keeps. Give it a password there.",
        "; \"no_curved\" (%) has ed25519, so the file needs the password itself:",
        "; \"no_two\" has accounts that differ (%, 192.0.2.%). The server takes the one for the gate's",
    ] {
        assert!(told.lines().any(|told| told == line), "{line} in {told}");
    }
    assert!(told.contains("; \"no_local\" (localhost) has unix_socket, which no gate can prove."), "{told}");
    assert!(!told.contains("no_role"), "{told}");
}

/// What the command says of these users beside their lines.
const NOTES: [(&str, &str); 7] = [
    ("shut", "is locked: the server lets nobody in before ALTER USER … ACCOUNT UNLOCK."),
    ("fresh", "has a password that has expired: logins through the gate fail."),
    ("stale", "has a password that has expired: logins through the gate fail."),
    ("tls", "takes TLS only: the gate needs upstream_tls_mode."),
    ("cipher", "takes TLS with one cipher only: the gate needs upstream_tls_mode,"),
    ("certified", "asks for a client's certificate, and the gate has none to show: logins fail."),
    ("issued", "asks for a client's certificate, and the gate has none to show: logins fail."),
];

#[test]
fn what_the_server_refuses_by_itself_is_told_beside_the_line() {
    let stage = Stage::start(&[], "");
    create_accounts(&stage, "be");
    let upstream = format!("unix:{}", stage.server.socket().display());
    let told = || text(&import(&["--upstream", &upstream], "be_reader", "asks").stdout);
    let has = |told: &str, (user, note): (&str, &str)| {
        let lines: Vec<_> = told.lines().filter(|line| line.contains(&format!("\"be_{user}\""))).collect();
        let is_in = lines.last().is_some_and(|line| line.starts_with(&format!("\"be_{user}\" \"*")));
        assert!(is_in, "{user} has no line in {told}");
        lines.iter().any(|line| line.starts_with(&format!("; \"be_{user}\" (%) {note}")))
    };
    assert!(!has(&told(), NOTES[1]), "a password that lasts for a day");
    let age = "UPDATE mysql.global_priv SET priv = JSON_SET(priv, '$.password_last_changed', 1700000000) \
               WHERE user IN ('be_fresh', 'be_ann')";
    stage.server.query(age).unwrap();
    let all = told();
    NOTES.into_iter().for_each(|note| assert!(has(&all, note), "{note:?} in {all}"));
    assert!(!all.contains("; \"be_ann\""), "{all}");

    stage.server.query("REVOKE SELECT ON mysql.global_priv FROM be_reader@'%'").unwrap();
    let less = told();
    let unknown = NOTES.into_iter().filter(|note| !has(&less, *note)).map(|(user, _)| user);
    assert_eq!(unknown.collect::<Vec<_>>(), ["shut", "fresh"], "{less}");
}

/// MariaDB, with the table of accounts that MySQL 8 has.
#[test]
fn the_accounts_of_mysql_8_are_told_alike() {
    let server = PrivateMariadb::start(&[]).unwrap();
    let kept = "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7";
    let row = |user: &str, more: &str| {
        format!(
            "INSERT INTO mysql.user SET host = '%', user = '{user}', plugin = 'mysql_native_password', \
             authentication_string = '{kept}'{more};"
        )
    };
    let rows = [
        ("ann", ""),
        ("shut", ", account_locked = 'Y'"),
        ("fresh", ", password_lifetime = 1, password_last_changed = NOW() - INTERVAL 2 DAY"),
        ("lasting", ", password_lifetime = 3, password_last_changed = NOW() - INTERVAL 2 DAY"),
        ("stale", ", password_expired = 'Y'"),
        ("tls", ", ssl_type = 'ANY'"),
        ("cipher", ", ssl_type = 'SPECIFIED', ssl_cipher = 'one'"),
        ("certified", ", ssl_type = 'X509'"),
        ("issued", ", ssl_type = 'SPECIFIED', x509_issuer = '/CN=one'"),
    ];
    let rows = rows.map(|(user, more)| row(user, more)).concat();
    let table = "CREATE USER reader@'%' IDENTIFIED BY 'asks';
        DROP VIEW mysql.user;
        CREATE TABLE mysql.user (
            host CHAR(255) CHARACTER SET ascii NOT NULL, user CHAR(32) COLLATE utf8mb4_bin NOT NULL,
            ssl_type ENUM('', 'ANY', 'X509', 'SPECIFIED') NOT NULL DEFAULT '', ssl_cipher BLOB NOT NULL DEFAULT '',
            x509_issuer BLOB NOT NULL DEFAULT '', x509_subject BLOB NOT NULL DEFAULT '',
            plugin CHAR(64) COLLATE utf8mb4_bin NOT NULL DEFAULT 'caching_sha2_password',
            authentication_string TEXT COLLATE utf8mb4_bin,
            password_expired ENUM('N', 'Y') NOT NULL DEFAULT 'N', password_last_changed TIMESTAMP NULL,
            password_lifetime SMALLINT UNSIGNED, account_locked ENUM('N', 'Y') NOT NULL DEFAULT 'N'
        );
        GRANT SELECT ON mysql.user TO reader@'%';";
    server.query(&format!("{table}{rows}")).unwrap();
    let told = import(&["--upstream", &format!("unix:{}", server.socket().display())], "reader", "asks");
    let all = text(&told.stdout);
    let notes = all.lines().filter(|line| line.starts_with("; \"")).collect::<Vec<_>>();
    assert_eq!(notes.len(), NOTES.len(), "{all}");
    for (user, note) in NOTES {
        assert!(
            notes.iter().any(|line| line.starts_with(&format!("; \"{user}\" (%) {note}"))),
            "{user}: {all}"
        );
    }
    assert_eq!(all.lines().filter(|line| line.starts_with('"')).count(), 9, "{all}");
}

#[test]
fn an_account_without_a_name_is_told_of_that_hides_others() {
    let server = PrivateMariadb::start(&[]).unwrap();
    let accounts = "CREATE USER ann@'%' IDENTIFIED BY 'one', reader@localhost IDENTIFIED BY 'asks';
        GRANT ALL ON witness.* TO ann@'%';
        GRANT SELECT ON mysql.* TO reader@localhost";
    server.query(accounts).unwrap();
    let login = || Session::login(&server.socket(), ("ann", Secret::Password("one")), capabilities());
    assert!(login().is_ok());
    server.query("CREATE USER ''@localhost").unwrap();
    assert_eq!(login().err().unwrap().code, 1045);
    let told = import(&["--upstream", &format!("unix:{}", server.socket().display())], "reader", "asks");
    let hidden = "; From localhost the server takes \"ann\" for the account without a name, and refuses the password: \
                  DROP USER ''@'localhost'.";
    assert!(text(&told.stdout).contains(hidden), "{}", text(&told.stdout));
}

#[test]
fn what_is_there_is_not_overwritten_and_an_error_names_what_to_do() {
    let stage = Stage::start(&[], "");
    create_accounts(&stage, "er");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users.txt");
    std::fs::write(&file, "mine").unwrap();
    let upstream = format!("unix:{}", stage.server.socket().display());
    let output = ["--upstream", &upstream, "--output", file.to_str().unwrap()];
    let nowhere = format!("unix:{}", directory.path().join("none.sock").display());
    for (args, user, password, code, words) in [
        (&output[..], "er_reader", "asks", 2, vec!["users.txt: is there already", "name another file"]),
        (
            &output[..2],
            "er_reader",
            "guesses",
            1,
            vec!["as \"er_reader\"", "Access denied", "from localhost"],
        ),
        (&output[..2], "er_reader", "", 1, vec!["Access denied", "--password-file"]),
        (&output[..2], "er_ann", "one", 1, vec!["denied", "GRANT SELECT ON mysql.user", "--user"]),
        (&["--upstream", &nowhere], "er_reader", "asks", 1, vec!["none.sock", "no connection"]),
        (&["--upstream", "mysql://x"], "er_reader", "asks", 2, vec!["--upstream"]),
        (&["--upstream", &upstream, "--password-file", "/nowhere"], "x", "", 2, vec!["/nowhere: cannot"]),
    ] {
        let told = import(args, user, password);
        let (out, error) = (text(&told.stdout), text(&told.stderr));
        assert!(!error.contains("over the server's socket"), "it is asked there: {error}");
        assert_eq!((told.status.code(), out.as_str()), (Some(code), ""), "{args:?}: {error}");
        assert!(words.iter().all(|word| error.contains(word)), "{args:?}: {error}");
        assert!(password.is_empty() || !error.contains(password), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn the_password_comes_from_a_file_or_from_standard_input() {
    let stage = Stage::start(&[], "");
    create_accounts(&stage, "pw");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "asks\n").unwrap();
    let allow = |mode: u32| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    allow(0o600);
    let upstream = format!("unix:{}", stage.server.socket().display());
    let run = |from: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
        command.args(["users", "import", "--user", "pw_reader", "--upstream", &upstream]);
        command.args(["--password-file", from]).stdin(std::fs::File::open(&file).unwrap());
        command.env("MYSQL_PWD", "another").output().unwrap()
    };
    for from in [file.to_str().unwrap(), "-"] {
        let told = run(from);
        assert!(text(&told.stdout).contains("\n\"pw_ann\" \"*"), "{}", text(&told.stderr));
    }
    allow(0o644);
    let told = run(file.to_str().unwrap());
    let (code, error) = (told.status.code(), text(&told.stderr));
    assert!(code == Some(2) && error.contains("open to everybody (mode 644); chmod 600"), "{error}");
    std::fs::write(&file, "two\nlines\n").unwrap();
    assert_eq!(run("-").status.code(), Some(2));
}
