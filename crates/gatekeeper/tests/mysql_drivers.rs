//! Drivers and programs for MySQL and MariaDB, unmodified, through the gatekeeper in front of MariaDB.
//!
//! Each driver's checks are a program of its own under `tests/drivers/mysql`, which prints a line for each
//! check and what the server answered. It runs three times: at the server itself, through the gate in the
//! clear, and through it with TLS. It must succeed and print the same each time. A driver that is not
//! installed fails its test: `make setup` installs it.

#![cfg(unix)]
// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic, dead_code)]

mod support;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use support::certificates::Authority;
use support::{CONNECTIONS, Gate, run_to_its_end, tests_directory};
use testbed::mariadb::PrivateMariadb;
use wire::mysql::capabilities::Capabilities;
use wire::mysql::codec::Sequence;
use wire::mysql::handshake::write_tls_request;

/// The password of every driver's account.
const PASSWORD: &str = "secret ' of the drivers";
/// How long the server's list may hold a connection that was closed. Only a hang takes longer.
const LIST_BOUND: Duration = Duration::from_secs(30);
const OPTIONS: [&str; 5] = [
    "--max-allowed-packet=64M",
    "--local-infile=1",
    "--character-set-server=utf8mb4",
    "--log-bin=log",
    "--log-bin-trust-function-creators=1",
];

static SERVER: Mutex<Weak<PrivateMariadb>> = Mutex::new(Weak::new());

fn server() -> Arc<PrivateMariadb> {
    let mut shared = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(PrivateMariadb::start(&OPTIONS).expect("MariaDB starts"));
        *shared = Arc::downgrade(&server);
        server
    })
}

/// The server, a gate before it with TLS for those that ask, and an account and a database of one driver.
struct Stack {
    gate: Gate,
    server: Arc<PrivateMariadb>,
    name: String,
    authority: Authority,
}

/// Where a program connects to.
#[derive(Clone, Copy, Debug)]
enum Way {
    Direct,
    Clear,
    Encrypted,
}

impl Stack {
    fn start(name: &str) -> Self {
        Self::with(name, &[])
    }

    /// With more lines of configuration.
    fn with(name: &str, more: &[String]) -> Self {
        let server = server();
        let authority = Authority::new("the tests' authority");
        let certificate = authority.issue("the gate", &["localhost", "127.0.0.1"]);
        let (certificate, key) = authority.files("gate", &certificate);
        let users = authority.path().with_file_name("users.txt");
        std::fs::write(&users, format!("\"{name}\" \"{PASSWORD}\"\n")).expect("a users file");
        std::fs::set_permissions(&users, std::fs::Permissions::from_mode(0o600)).expect("its permissions");
        let quoted = |path: &Path| format!("{:?}", path.display().to_string());
        let settings = [
            "protocol = \"mysql\"".to_owned(),
            format!("users_file = {}", quoted(&users)),
            format!("tls_cert = {}", quoted(&certificate)),
            format!("tls_key = {}", quoted(&key)),
            format!("connections = {CONNECTIONS}"),
            "long_limit = 0".to_owned(),
        ];
        let gate = Gate::start(server.port(), &[&settings[..], more].concat());
        let password = PASSWORD.replace('\'', "''");
        let account = format!(
            "CREATE OR REPLACE USER `{name}`@'%' IDENTIFIED BY '{password}'; GRANT ALL ON *.* TO `{name}`@'%'"
        );
        server.query(&account).expect("an account");
        Self { gate, server, name: name.to_owned(), authority }
    }

    /// Empties the driver's database.
    fn clear(&self) {
        let name = &self.name;
        let sql =
            format!("SET foreign_key_checks = 0; CREATE OR REPLACE DATABASE `{name}` CHARACTER SET utf8mb4");
        self.server.query(&sql).expect("a database");
    }

    fn port(&self, way: Way) -> u16 {
        match way {
            Way::Direct => self.server.port(),
            Way::Clear | Way::Encrypted => self.gate.port(),
        }
    }

    /// Runs a program, which must succeed. What it printed is returned.
    fn run(&self, mut program: Command, way: Way) -> String {
        program
            .env("MYSQL_HOST", "127.0.0.1")
            .env("MYSQL_TCP_PORT", self.port(way).to_string())
            .env("MYSQL_USER", &self.name)
            .env("MYSQL_PWD", PASSWORD)
            .env("MYSQL_DATABASE", &self.name)
            .env("UPSTREAM_PORT", self.server.port().to_string())
            .env("GATEKEEPER_CONNECTIONS", CONNECTIONS.to_string());
        if !matches!(way, Way::Direct) {
            program.env("GATEKEEPER_PID", self.gate.pid().to_string());
        }
        if matches!(way, Way::Encrypted) {
            let authority = self.authority.path();
            program.env("MYSQL_TLS_CA", &authority).env("NODE_EXTRA_CA_CERTS", &authority);
        }
        let logs = || {
            format!(
                "{way:?}\n--- the gatekeeper's log\n{}\n--- MariaDB's log\n{}",
                self.gate.log_tail(),
                self.server.log_tail()
            )
        };
        run_to_its_end(program, logs)
    }

    /// The server's connections of the driver's account, and whether the gate is as it was at the start.
    fn assert_whole(&self) {
        self.gate.assert_alive();
        let asked =
            format!("SELECT COUNT(*) FROM information_schema.processlist WHERE user = '{}'", self.name);
        let open = || -> u32 { self.server.query(&asked).expect("a count").parse().expect("a number") };
        // A connection that was closed is counted until its thread has ended.
        let deadline = Instant::now() + LIST_BOUND;
        while open() > CONNECTIONS {
            assert!(Instant::now() < deadline, "{} connections", open());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Runs a driver's checks at the server and in each way through the gate, with the same results.
fn check(name: &str, program: impl Fn() -> Command) {
    let stack = Stack::start(name);
    let [expected, clear, encrypted] = [Way::Direct, Way::Clear, Way::Encrypted].map(|way| {
        stack.clear();
        stack.run(program(), way)
    });
    println!("{expected}");
    assert!(expected.contains("ok     "), "no check ran: {expected}");
    assert_eq!(clear, expected, "in the clear");
    assert_eq!(encrypted, expected, "with TLS");
    stack.assert_whole();
}

fn sources(driver: &str) -> PathBuf {
    tests_directory().join("drivers/mysql").join(driver)
}

/// A driver's checks in Python.
fn python(checks: &'static str, module: &'static str) -> impl Fn() -> Command {
    move || {
        let mut program = support::python(&format!("mysql/{checks}"));
        program.arg(module);
        program
    }
}

#[test]
fn pymysql_works_through_the_gate() {
    check("pymysql", python("python", "pymysql"));
}

#[test]
fn mysqlclient_works_through_the_gate() {
    check("mysqlclient", python("python", "MySQLdb"));
}

#[test]
fn aiomysql_works_through_the_gate() {
    check("aiomysql", python("aio", "aiomysql"));
}

#[test]
fn asyncmy_works_through_the_gate() {
    check("asyncmy", python("aio", "asyncmy"));
}

#[test]
fn django_on_mysqlclient_works_through_the_gate() {
    check("django", python("django", ""));
}

#[test]
fn go_sql_driver_works_through_the_gate() {
    let executable = support::go(&sources("go"), "go-mysql-checks");
    check("go", || Command::new(&executable));
}

/// A driver's checks in Rust.
fn rust(driver: &'static str) -> impl Fn() -> Command {
    let executable = support::rust(&sources("rust"), "mysql-rust-checks");
    move || {
        let mut program = Command::new(&executable);
        program.arg(driver);
        program
    }
}

#[test]
fn mysql_async_works_through_the_gate() {
    check("mysql_async", rust("mysql_async"));
}

#[test]
fn sqlx_works_through_the_gate() {
    check("sqlx", rust("sqlx"));
}

#[test]
fn mysql2_works_through_the_gate() {
    check("mysql2", || support::node("mysql/node/main.cjs"));
}

#[test]
fn connector_j_and_mariadbs_and_hibernate_on_it_work_through_the_gate() {
    let shared = ["Harness.java", "HibernateChecks.java"];
    check("java", support::java(&sources("java"), &shared, "mysql-java-classes"));
}

/// Runs a driver's checks of the console, in the clear and with TLS.
fn check_console(name: &str, program: impl Fn() -> Command) {
    let stack = Stack::with(name, &[format!("admin_users = [\"{name}\"]")]);
    for way in [Way::Clear, Way::Encrypted] {
        let printed = stack.run(program(), way);
        assert!(printed.contains("ok     "), "no check ran: {printed}");
    }
    stack.assert_whole();
}

#[test]
fn pythons_drivers_use_the_console() {
    for module in ["pymysql", "MySQLdb", "aiomysql", "asyncmy"] {
        check_console(&format!("{module}_console"), python("console.py", module));
    }
}

#[test]
fn go_sql_driver_uses_the_console() {
    let executable = support::go(&sources("go"), "go-mysql-console");
    check_console("go_console", || {
        let mut program = Command::new(&executable);
        program.arg("console");
        program
    });
}

#[test]
fn mysql2_uses_the_console() {
    check_console("mysql2_console", || support::node("mysql/node/console.cjs"));
}

#[test]
fn connector_j_and_mariadbs_use_the_console() {
    let shared = ["Harness.java", "HibernateChecks.java"];
    let program = support::java(&sources("java"), &shared, "mysql-java-console");
    check_console("java_console", || {
        let mut program = program();
        program.env("JAVA_TOOL_OPTIONS", "-Dconsole=true");
        program
    });
}

#[test]
fn tls_that_comes_right_behind_the_request_for_it_is_taken() {
    let stack = Stack::start("hasty");
    let mut socket = TcpStream::connect(("127.0.0.1", stack.gate.port())).expect("the gate listens");
    let mut header = [0; 4];
    socket.read_exact(&mut header).expect("a greeting");
    socket.read_exact(&mut vec![0; usize::from(header[0])]).expect("the rest of it");
    let capabilities = Capabilities(Capabilities::PROTOCOL_41.0 | Capabilities::SECURE_CONNECTION.0);
    let mut bytes = BytesMut::new();
    write_tls_request(&mut bytes, Sequence(1), (capabilities, 1 << 24, 45));
    let mut encrypted = stack.authority.connect(socket, None, None);
    let mut hello = Vec::new();
    encrypted.conn.write_tls(&mut hello).expect("a hello");
    // One write: the gate finds both when it reads.
    encrypted.sock.write_all(&[&bytes[..], &hello].concat()).expect("the gate reads");
    while encrypted.conn.is_handshaking() {
        encrypted.conn.complete_io(&mut encrypted.sock).expect("the gate answers");
    }
}

/// The last part of a dump that doesn't say when it was made.
fn without_date(dump: &str) -> String {
    // The options of XML have statistics of the table, which the server makes anew in the background.
    let varies = ["-- Dump completed", "-- Host:", "<options "];
    let lines = dump.lines().filter(|line| !varies.iter().any(|start| line.trim_start().starts_with(start)));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_database_is_dumped_and_restored_as_without_the_gate() {
    let stack = Stack::start("dumped");
    let database =
        "CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB, c VARCHAR(20), d DATETIME(3));
         INSERT INTO a (b, c, d) SELECT REPEAT(CHAR(seq % 256), 3000), CONCAT('ä ', seq), NOW(3)
             FROM seq_1_to_2000;
         CREATE VIEW v AS SELECT id, c FROM a WHERE id < 10;
         CREATE TRIGGER t BEFORE INSERT ON a FOR EACH ROW SET NEW.c = UPPER(NEW.c);
         CREATE FUNCTION f(x INT) RETURNS INT DETERMINISTIC RETURN x * 2;
         CREATE EVENT e ON SCHEDULE EVERY 1 YEAR DO DELETE FROM a WHERE id = 0;";
    let dump = |way, more: &[&str]| {
        let mut program = Command::new("mariadb-dump");
        program.args([
            "--no-defaults",
            "--host=127.0.0.1",
            "--user=dumped",
            "--routines",
            "--events",
            "--triggers",
            "--hex-blob",
        ]);
        program.args(more).arg("dumped");
        if matches!(way, Way::Encrypted) {
            program.arg("--ssl").arg(format!("--ssl-ca={}", stack.authority.path().display()));
        }
        without_date(&stack.run(program, way))
    };
    stack.clear();
    stack.server.query(&format!("USE dumped; {database}")).expect("a database to dump");
    for more in [&["--single-transaction"][..], &["--lock-tables", "--skip-extended-insert"], &["--xml"]] {
        let expected = dump(Way::Direct, more);
        for way in [Way::Clear, Way::Encrypted] {
            assert!(dump(way, more) == expected, "{way:?} {more:?}");
        }
    }
    let whole = dump(Way::Clear, &["--single-transaction"]);
    stack.clear();
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), &whole).expect("it is written");
    let mut restore = Command::new("mariadb");
    restore.args(["--no-defaults", "--host=127.0.0.1", "--user=dumped", "dumped", "--execute"]);
    restore.arg(format!("source {}", file.path().display()));
    stack.run(restore, Way::Clear);
    assert!(dump(Way::Direct, &["--single-transaction"]) == whole, "the restored database is another");
    stack.assert_whole();
}

#[test]
fn sysbench_leaves_the_same_rows_as_without_the_gate_prepared_and_not() {
    let stack = Stack::start("sysbench");
    let run = |way, workload: &str, more: &[&str], command: &str| {
        let mut program = Command::new("sysbench");
        program
            .args([
                workload,
                "--tables=2",
                "--table-size=500",
                "--rand-seed=7",
                "--time=0",
                "--mysql-host=127.0.0.1",
            ])
            .arg(format!("--mysql-port={}", stack.port(way)))
            .args(["--mysql-user=sysbench", "--mysql-db=sysbench"])
            .arg(format!("--mysql-password={PASSWORD}"))
            .args(more)
            .arg(command);
        stack.run(program, way)
    };
    for prepared in ["--db-ps-mode=auto", "--db-ps-mode=disable"] {
        let [direct, again, gate] = [Way::Direct, Way::Direct, Way::Clear].map(|way| {
            stack.clear();
            run(way, "oltp_read_write", &["--threads=1"], "prepare");
            for workload in ["oltp_read_write", "oltp_insert", "oltp_update_index", "oltp_point_select"] {
                run(way, workload, &[prepared, "--threads=1", "--events=100"], "run");
            }
            stack.server.query("CHECKSUM TABLE sysbench.sbtest1, sysbench.sbtest2").expect("sums")
        });
        if direct == again {
            assert_eq!(gate, direct, "{prepared}");
        } else {
            eprintln!("not compared: sysbench writes other rows each time here, also without the gate");
        }
        // Many threads over few connections: no error but those of the server, which sysbench repeats.
        run(Way::Clear, "oltp_read_write", &[prepared, "--threads=16", "--events=400"], "run");
    }
    stack.assert_whole();
}

/// What fails at the server itself, and costs ten seconds or the tests behind it.
const GO_SKIPPED: &str = "^TestConnectorReturnsTimeout$";

/// Runs go-sql-driver's own tests of these names, and returns which passed and which failed.
fn go_suite(stack: &Stack, way: Way, only: &str) -> [BTreeSet<String>; 2] {
    let module = "github.com/go-sql-driver/mysql";
    let listed = support::go_command()
        .args(["list", "-m", "-f", "{{.Dir}}", module])
        .current_dir(sources("go"))
        .output()
        .expect("go is installed (`make setup`)");
    let source = PathBuf::from(String::from_utf8_lossy(&listed.stdout).trim());
    stack.clear();
    let run = support::go_command()
        .args(["test", "-v", "-count=1", "-vet=off", "-timeout=400s", "-skip", GO_SKIPPED, "-run", only, "."])
        .env("MYSQL_TEST_USER", &stack.name)
        .env("MYSQL_TEST_PASS", PASSWORD)
        .env("MYSQL_TEST_ADDR", format!("127.0.0.1:{}", stack.port(way)))
        .env("MYSQL_TEST_DBNAME", &stack.name)
        .env("MYSQL_TEST_CONCURRENT", "1")
        .current_dir(source)
        .output()
        .expect("go is installed (`make setup`)");
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(text.contains("\nok ") || text.ends_with("FAIL\n"), "{text}");
    assert!(!text.contains("\npanic: "), "{text}");
    ["--- PASS: ", "--- FAIL: "].map(|mark| {
        let names = text.lines().filter_map(|line| line.strip_prefix(mark)?.split(' ').next());
        names.map(str::to_owned).collect()
    })
}

#[test]
fn go_sql_drivers_own_suite_passes_but_for_what_fails_directly() {
    let stack = Stack::start("gotest");
    let [passed, failed] = go_suite(&stack, Way::Direct, ".");
    println!("directly: {} passed, failed: {failed:?}", passed.len());
    let [passed, mut surprising] = go_suite(&stack, Way::Clear, ".");
    println!("through the gate: {} passed, failed: {surprising:?}", passed.len());
    surprising.retain(|test| !failed.contains(test));
    // Tests of time-outs fail now and then on a busy machine: what fails must fail by itself, too.
    if !surprising.is_empty() {
        let names = surprising.iter().map(String::as_str).collect::<Vec<_>>().join("|");
        let [_, again] = go_suite(&stack, Way::Clear, &format!("^({names})$"));
        assert!(again.is_empty(), "{again:?}");
    }
    stack.gate.assert_alive();
}
