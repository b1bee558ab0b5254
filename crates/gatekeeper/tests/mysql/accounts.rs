//! `gatekeeper users import`: a users file from the accounts of a real server.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};

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
    assert!(text(&told.stdout).contains("more have a comment"), "{}", text(&told.stdout));
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
    for user in ["in_open", "in_closed", "in_curved", "in_local", "in_two", "in_shut"] {
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
        "; \"no_shut\" (%) is locked: unlock it there (ALTER USER … ACCOUNT UNLOCK).",
        "; \"no_closed\" (%) is closed: no password fits what the server keeps. Give it a password there.",
        "; \"no_curved\" (%) has ed25519, so the file needs the password itself:",
        "; \"no_two\" has accounts that differ (%, 192.0.2.%). The server takes the one for the gate's",
    ] {
        assert!(told.lines().any(|told| told == line), "{line} in {told}");
    }
    assert!(told.contains("; \"no_local\" (localhost) has unix_socket, which no gate can prove."), "{told}");
    assert!(!told.contains("no_role") && !told.contains("hasn't told"), "{told}");

    stage.server.query("REVOKE SELECT ON mysql.global_priv FROM no_reader@'%'").unwrap();
    let told = text(&import(&["--upstream", &upstream], "no_reader", "asks").stdout);
    assert!(told.contains("hasn't told which") && told.contains("\n\"no_shut\" \"*"), "{told}");
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
        (&output[..2], "er_reader", "guesses", 1, vec!["as \"er_reader\"", "Access denied", "see that"]),
        (&output[..2], "er_reader", "", 1, vec!["Access denied", "--password-file"]),
        (&output[..2], "er_ann", "one", 1, vec!["denied", "GRANT SELECT ON mysql.user", "--user"]),
        (&["--upstream", &nowhere], "er_reader", "asks", 1, vec!["none.sock", "no connection"]),
        (&["--upstream", "mysql://x"], "er_reader", "asks", 2, vec!["--upstream"]),
        (&["--upstream", &upstream, "--password-file", "/nowhere"], "x", "", 2, vec!["/nowhere: cannot"]),
    ] {
        let told = import(args, user, password);
        let (out, error) = (text(&told.stdout), text(&told.stderr));
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
    std::fs::write(&file, "two\nlines\n").unwrap();
    assert_eq!(run("-").status.code(), Some(2));
}
