//! The program as a black box: what it prints, where, and how it exits.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of tests fails like a test")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use tempfile::TempDir;

/// The program, in an empty directory and with an empty environment.
fn gatekeeper(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
    command.args(args).current_dir(directory).env_clear().env("HOME", directory);
    command
}

/// Exit status, standard output, standard error.
fn outcome(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn ran(directory: &Path, args: &[&str]) -> (i32, String, String) {
    outcome(&gatekeeper(directory, args).output().unwrap())
}

/// A directory with `gatekeeper.toml` in it.
fn with_config(text: &str) -> TempDir {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("gatekeeper.toml"), text).unwrap();
    directory
}

const MINIMAL: &str = "[[gate]]\nupstream = \"db:5432\"\n";

#[test]
fn check_prints_what_holds_and_that_is_a_configuration_itself() {
    let directory = with_config(MINIMAL);
    let (code, printed, said) = ran(directory.path(), &["check", "gatekeeper.toml"]);
    assert_eq!((code, said.as_str()), (0, ""));
    assert!(printed.contains("\nupstream = \"db:5432\"\n") && printed.contains("\nqueue_max = 100000\n"));

    fs::write(directory.path().join("printed.toml"), &printed).unwrap();
    assert_eq!(ran(directory.path(), &["check", "printed.toml"]), (0, printed, String::new()));
}

#[test]
fn check_and_run_say_that_a_state_file_has_no_directory() {
    let directory = with_config(MINIMAL);
    let nowhere = directory.path().join("nowhere");
    let file = nowhere.join("shop.json");
    let listen = "listen = \"127.0.0.1:0\"\n";
    let text = format!("[admin]\n{listen}{MINIMAL}{listen}state_file = \"{}\"\n", file.display());
    fs::write(directory.path().join("gatekeeper.toml"), text).unwrap();
    let why = format!("what is learned won't be kept: there is no directory {}; make it", nowhere.display());
    let (code, printed, said) = ran(directory.path(), &["check"]);
    assert!(code == 0 && printed.contains("shop.json"), "{printed}");
    assert!(said.starts_with(&format!("gate \"postgres\": state_file: {why}")), "{said}");
    let said = Running::start(directory.path(), &["run"]).line_with(&why);
    assert!(said.contains("level=warn"), "{said}");
    fs::create_dir(nowhere).unwrap();
    assert_eq!(ran(directory.path(), &["check"]).2, "");
}

#[test]
fn check_and_run_say_which_directory_a_trace_has_not() {
    let directory = with_config(MINIMAL);
    let file = directory.path().join("nowhere/shop.trace");
    let listen = "listen = \"127.0.0.1:0\"\n";
    let text = format!("[admin]\n{listen}{MINIMAL}{listen}trace_file = \"{}\"\n", file.display());
    fs::write(directory.path().join("gatekeeper.toml"), text).unwrap();
    let why = format!("there is no directory {}; make it", file.parent().unwrap().display());
    let (code, _, said) = ran(directory.path(), &["check"]);
    let begin = format!("gate \"postgres\": trace_file: the gate won't start: {why}");
    assert!(code == 1 && said.starts_with(&begin), "{said}");
    let (code, _, said) = ran(directory.path(), &["run"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&format!("trace_file: {}: {why}", file.display())), "{said}");
}

#[test]
fn check_and_run_say_which_directory_a_socket_or_an_access_log_has_not() {
    let directory = with_config("");
    let nowhere = directory.path().join("nowhere");
    let why = format!("there is no directory {}; make it", nowhere.display());
    let gate = "[[gate]]\nprotocol = \"http\"\nupstream = \"127.0.0.1:1\"\n";
    let local = "listen = \"127.0.0.1:0\"\n";
    let file = |name: &str| nowhere.join(name).display().to_string();
    let cases = [
        (
            format!("[admin]\nsocket = \"{}\"\n{gate}{local}", file("admin.sock")),
            format!("admin: socket: gatekeeper won't start: {why}"),
            1,
            format!("cannot serve the admin listener on {}: {why}", file("admin.sock")),
        ),
        (
            format!("[admin]\n{local}{gate}listen = \"unix:{}\"\n", file("site.sock")),
            format!("gate \"http\": listen: the gate can't make its socket itself: {why}"),
            0,
            format!("cannot listen on unix:{}: {why}", file("site.sock")),
        ),
        (
            format!("[admin]\n{local}{gate}{local}access_log = \"{}\"\n", file("access.json")),
            format!("gate \"http\": access_log: the gate won't start: {why}"),
            1,
            format!("access_log: {}: {why}", file("access.json")),
        ),
    ];
    for (text, of_check, exits_with, of_run) in cases {
        fs::write(directory.path().join("gatekeeper.toml"), text).unwrap();
        let (code, printed, said) = ran(directory.path(), &["check"]);
        assert!(said.starts_with(&of_check), "{said}");
        assert!(code == exits_with && printed.contains("[[gate]]"), "{code}: {printed}");
        let (code, _, said) = ran(directory.path(), &["run"]);
        assert!(code > 0 && said.contains(&of_run), "{code}: {said}");
    }
}

#[test]
fn a_users_file_of_mysql_that_is_not_there_can_be_made() {
    let gate = "[[gate]]\nprotocol = \"mysql\"\nupstream = \"127.0.0.1:3306\"\nusers_file = \"/nowhere/users.txt\"\n";
    let directory = with_config(gate);
    let (code, _, said) = ran(directory.path(), &["check"]);
    assert!(code == 2 && said.contains("; `gatekeeper users import` makes one"), "{said}");
}

#[test]
fn a_users_file_is_named_once_where_it_is_wrong() {
    let directory = TempDir::new().unwrap();
    let flags = ["run", "--protocol", "mysql", "--upstream", "127.0.0.1:3306", "--users-file", "users.txt"];
    let (code, _, said) = ran(directory.path(), &flags);
    assert!(code == 2 && said.starts_with("--users-file \"users.txt\": cannot be read: "), "{said}");
    assert_eq!(said.matches("users.txt").count(), 1, "{said}");
    let file = directory.path().join("users.txt");
    fs::write(&file, "\"ann\" \"one\"\nbob two\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let (code, _, said) = ran(directory.path(), &flags);
    assert!(code == 2 && said.starts_with("--users-file \"users.txt\": line 2: "), "{said}");
}

#[test]
fn check_says_of_an_admin_listener_that_other_machines_can_reach_it() {
    let directory = with_config(&format!("[admin]\nlisten = \"0.0.0.0:6433\"\n{MINIMAL}"));
    let (code, _, said) = ran(directory.path(), &["check"]);
    assert!(code == 0 && said.contains("\"0.0.0.0:6433\": other machines can reach it"), "{said}");
    let directory = with_config(&format!("[admin]\nlisten = \"[::1]:6433\"\n{MINIMAL}"));
    assert_eq!(ran(directory.path(), &["check"]).2, "");
}

#[test]
fn check_without_a_file_takes_the_one_that_run_would_find() {
    let directory = with_config(MINIMAL);
    let named = ran(directory.path(), &["check", "gatekeeper.toml"]);
    assert_eq!(ran(directory.path(), &["check"]), named);
    assert_eq!(ran(directory.path(), &["check", "--config", "gatekeeper.toml"]), named);
    let nowhere = TempDir::new().unwrap();
    let (code, _, said) = ran(nowhere.path(), &["check"]);
    assert_eq!(code, 2);
    assert!(said.starts_with("there is no configuration; looked for\n  ./gatekeeper.toml\n"), "{said}");
}

#[test]
fn check_lists_every_error_with_its_line_and_exits_with_2() {
    let directory = with_config("[[gate]]\nqueue_timeout = 120\nconections = 5\n");
    let (code, printed, said) = ran(directory.path(), &["check", "gatekeeper.toml"]);
    assert_eq!((code, printed.as_str()), (2, ""));
    assert_eq!(
        said,
        "gatekeeper.toml:1: gate: upstream: is missing; write where the server listens, such as \"127.0.0.1:5432\"\n\
         gatekeeper.toml:2: gate: queue_timeout = 120: needs a unit; write \"120ms\", \"120s\" or \"120m\", as you mean it\n\
         gatekeeper.toml:3: gate: conections: there is no such key; did you mean `connections`?\n"
    );
}

#[test]
fn check_of_a_file_that_is_not_there_exits_with_2() {
    let directory = TempDir::new().unwrap();
    let (code, _, said) = ran(directory.path(), &["check", "nowhere.toml"]);
    assert_eq!(code, 2);
    assert!(said.starts_with("nowhere.toml: cannot be read: "), "{said}");
}

#[test]
fn a_wrong_call_is_explained_and_exits_with_2() {
    let directory = TempDir::new().unwrap();
    for args in
        [&[][..], &["walk"], &["run", "--conections", "5"], &["run", "--config", "a", "--upstream", "b:1"]]
    {
        let (code, _, said) = ran(directory.path(), args);
        assert_eq!(code, 2, "{args:?}: {said}");
        assert!(said.contains("Usage"), "{args:?}: {said}");
    }
    let (code, printed, _) = ran(directory.path(), &["run", "--help"]);
    assert_eq!(code, 0);
    assert!(printed.contains("--queue-timeout <TIME>"), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
}

#[test]
fn run_without_any_configuration_says_where_it_looked() {
    let directory = TempDir::new().unwrap();
    let (code, _, said) = ran(directory.path(), &["run"]);
    let home = directory.path().display();
    assert_eq!(code, 2);
    assert_eq!(
        said,
        format!(
            "there is no configuration; looked for\n  ./gatekeeper.toml\n  {home}/.config/gatekeeper/gatekeeper.toml\n  \
             /etc/gatekeeper/gatekeeper.toml\nName one with --config FILE, or do without: gatekeeper run --upstream 127.0.0.1:5432, \
             or gatekeeper run --protocol http --upstream 127.0.0.1:8000\n"
        )
    );
}

#[test]
fn run_with_wrong_flags_names_the_flags() {
    let directory = TempDir::new().unwrap();
    let (code, _, said) = ran(directory.path(), &["run", "--listen", "6432", "--queue-timeout", "9"]);
    assert_eq!(code, 2);
    assert_eq!(
        said,
        "--upstream: is missing; write where the server listens, such as \"127.0.0.1:5432\"\n\
         --listen \"6432\": has no host; write \"127.0.0.1:6432\"\n\
         --queue-timeout 9: needs a unit; write \"9ms\", \"9s\" or \"9m\", as you mean it\n"
    );
}

#[test]
fn run_with_a_wrong_file_lists_its_errors() {
    let directory = with_config("[[gate]]\nupstream = \"db\"\n");
    let (code, _, said) = ran(directory.path(), &["run"]);
    assert_eq!(
        (code, said.as_str()),
        (2, "./gatekeeper.toml:2: gate: upstream = \"db\": has no port; write \"db:5432\"\n")
    );
}

#[test]
fn an_address_in_use_is_a_failure_while_running() {
    let directory = TempDir::new().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, _, said) =
        ran(directory.path(), &["run", "--upstream", "127.0.0.1:1", "--admin", "none", "--listen", &address]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&format!("gate \"postgres\": cannot listen on {address}: ")), "{said}");
    assert!(said.contains("perhaps another gatekeeper") && said.contains("--listen"), "{said}");

    let (code, _, said) = ran(directory.path(), &["run", "--upstream", "127.0.0.1:1", "--admin", &address]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&format!("cannot serve the admin listener on {address}: ")), "{said}");
    assert!(said.contains("perhaps another gatekeeper") && said.contains("--admin"), "{said}");
}

#[test]
fn too_few_file_descriptors_are_said_at_the_start() {
    let directory = TempDir::new().unwrap();
    let limited = |limit: u64| {
        let program = env!("CARGO_BIN_EXE_gatekeeper");
        let script = format!(
            "ulimit -n {limit}; exec {program} run --upstream 127.0.0.1:1 --listen 127.0.0.1:0 --admin 192.0.2.1:1"
        );
        outcome(&Command::new("sh").arg("-c").arg(script).current_dir(directory.path()).output().unwrap())
    };
    let (code, _, said) = limited(64);
    assert_eq!(code, 1);
    assert!(said.contains("the process may open only 64 files"), "{said}");
    let (_, _, said) = limited(1000);
    assert!(said.contains("max_clients will not be reached"), "{said}");
}

/// A running gatekeeper; killed when the test ends early.
struct Running {
    child: Child,
    log: BufReader<ChildStderr>,
    seen: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already, as it should.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Starts it with an admin listener and a gate of its own ports, and a server that accepts nobody.
    fn start(directory: &Path, args: &[&str]) -> Self {
        let mut child = gatekeeper(directory, args).stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Self { child, log, seen: String::new() }
    }

    /// Reads the log up to a line with this in it, and returns that line.
    fn line_with(&mut self, wanted: &str) -> String {
        loop {
            let mut line = String::new();
            let length = self.log.read_line(&mut line).unwrap();
            self.seen += &line;
            if line.contains(wanted) {
                return line;
            }
            assert!(length > 0, "{wanted:?} is not in\n{}", self.seen);
        }
    }

    /// The address of the listener that this line of the JSON log announces.
    fn listen_in(&mut self, wanted: &str) -> String {
        let line = self.line_with(wanted);
        let event: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        event["listen"].as_str().unwrap().to_owned()
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

const ANYWHERE: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n[[gate]]\nname = \"shop\"\n\
                        listen = \"127.0.0.1:0\"\nupstream = \"127.0.0.1:1\"\n";

#[test]
fn too_few_file_descriptors_are_said_once_and_not_at_each_reload() {
    let directory = TempDir::new().unwrap();
    let config = directory.path().join("gatekeeper.toml");
    fs::write(&config, ANYWHERE).unwrap();
    let script = format!(
        "ulimit -n 1000; exec {} run --config {}",
        env!("CARGO_BIN_EXE_gatekeeper"),
        config.display()
    );
    let mut child = Command::new("sh").arg("-c").arg(script).stderr(Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let mut running = Running { child, log, seen: String::new() };
    running.line_with("\"ready\"");
    let scarce = |running: &Running| running.seen.matches("max_clients will not be reached").count();
    for _ in 0..2 {
        running.signal("-HUP");
        running.line_with("nothing has changed");
    }
    assert_eq!(scarce(&running), 1, "{}", running.seen);
    fs::write(&config, format!("{ANYWHERE}max_clients = 9000\n")).unwrap();
    running.signal("-HUP");
    running.line_with("reloaded: ");
    assert_eq!(scarce(&running), 2, "another number is told: {}", running.seen);
}

fn get(address: &str, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_running_gatekeeper_says_what_it_protects_answers_for_itself_and_ends_on_a_signal() {
    let directory = with_config(ANYWHERE);
    let mut running = Running::start(directory.path(), &["run"]);
    assert!(running.line_with("gatekeeper starts").contains("./gatekeeper.toml"));
    let admin = running.listen_in("admin listener");
    let line = running.line_with("protecting");
    assert!(line.contains("\"gate\":\"shop\"") && line.contains("\"upstream\":\"127.0.0.1:1\""), "{line}");
    let limits = running.line_with("limits");
    assert!(limits.contains("\"connections\":20") && limits.contains("\"queue_max\":100000"), "{limits}");
    running.line_with("\"ready\"");

    assert!(get(&admin, "/readyz").starts_with("HTTP/1.1 200 OK"));
    let status = get(&admin, "/status");
    assert!(status.contains("\"name\":\"shop\"") && status.contains("\"mode\":\"enforce\""), "{status}");
    let (code, printed, said) = ran(directory.path(), &["types", "--admin", &admin]);
    assert_eq!((code, printed.as_str(), said.as_str()), (0, "gate shop\nno requests yet\n", ""));
    let (code, printed, _) = ran(directory.path(), &["types", "--admin", &admin, "--gate", "shop", "--json"]);
    assert_eq!(code, 0);
    let report: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(report["gates"][0]["gate"], "shop");
    let (code, _, said) = ran(directory.path(), &["types", "--admin", &admin, "--gate", "nobody"]);
    assert_eq!((code, said.as_str()), (2, "there is no gate \"nobody\"\n"));

    running.signal("-TERM");
    running.line_with("draining");
    running.line_with("ended");
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
}

#[test]
fn types_without_a_gatekeeper_says_so_and_exits_with_1() {
    let directory = TempDir::new().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (code, _, said) = ran(directory.path(), &["types", "--admin", &free]);
    assert_eq!(code, 1);
    assert!(said.starts_with(&format!("no gatekeeper answers at {free}: ")), "{said}");
    assert!(said.contains("--admin ADDR") && said.contains("--config FILE"), "{said}");
    let (code, _, said) = ran(directory.path(), &["why", "--session", "abc"]);
    assert!(code == 2 && said.contains("sessions are numbered, as 17"), "{said}");
}

#[test]
fn something_else_at_the_admin_address_is_recognized() {
    let directory = TempDir::new().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        let mut request = [0; 1024];
        let _ = stream.read(&mut request).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").unwrap();
    });
    let (code, _, said) = ran(directory.path(), &["types", "--admin", &address]);
    assert_eq!(code, 1);
    assert!(said.starts_with(&format!("{address} doesn't answer like a gatekeeper: ")), "{said}");
    answering.join().unwrap();
}

#[test]
fn check_looks_at_the_files_of_tls() {
    use std::os::unix::fs::PermissionsExt as _;
    let config = |lines: &str| format!("[[gate]]\nupstream = \"db:5432\"\n{lines}\n");
    let directory = with_config(&config("tls_cert = \"gate.pem\"\ntls_key = \"gate.key\""));
    let write = |name: &str, text: &str, mode: u32| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let said = || ran(directory.path(), &["check", "gatekeeper.toml"]).2;
    let certificate_line = "gatekeeper.toml:3: gate: tls_cert = \"gate.pem\": ";
    let key_line = "gatekeeper.toml:4: gate: tls_key = \"gate.key\": ";
    assert!(said().starts_with(&format!("{certificate_line}cannot be read: ")), "{}", said());
    write("gate.pem", "no PEM", 0o644);
    assert!(said().starts_with(&format!("{certificate_line}holds no certificate; ")), "{}", said());
    let made = rcgen::generate_simple_self_signed(vec!["gate".to_owned()]).unwrap();
    write("gate.pem", &made.cert.pem(), 0o644);
    let key = made.signing_key.serialize_pem();
    for mode in [0o604, 0o640, 0o660, 0o644] {
        write("gate.key", &key, mode);
        // Root may let a group read.
        let is_root =
            std::os::unix::fs::MetadataExt::uid(&fs::metadata(directory.path().join("gate.key")).unwrap())
                == 0;
        let refused = format!(
            "{key_line}can be read or written by others (its mode is {mode:04o}); chmod 0600 gate.key\n"
        );
        let expected = if is_root && mode == 0o640 { String::new() } else { refused };
        assert_eq!(said(), expected);
    }
    write("gate.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\n", 0o600);
    assert!(said().starts_with(&format!("{key_line}is encrypted with a passphrase; ")), "{}", said());
    let other = rcgen::generate_simple_self_signed(vec!["gate".to_owned()]).unwrap();
    write("gate.key", &other.signing_key.serialize_pem(), 0o600);
    assert!(said().starts_with(&format!("{key_line}isn't the key of the certificate; ")), "{}", said());
    write("gate.key", &key, 0o600);
    assert_eq!(said(), "");
}

#[test]
fn an_uplink_is_set_up_by_commands_that_are_printed() {
    let directory = TempDir::new().unwrap();
    let set_up = |args: &[&str]| ran(directory.path(), &[&["uplink", "setup"], args].concat());
    let (code, out, _) = set_up(&["--dev", "eth0", "--rate", "10Mbit"]);
    assert_eq!((code, out.lines().count()), (0, 7), "{out}");
    assert!(out.starts_with("tc qdisc add dev eth0 root handle 1: htb default 10\n"), "{out}");
    let last =
        "tc class add dev eth0 parent 1:1 classid 1:14 htb rate 100kbit ceil 10000kbit prio 4 quantum 1514\n";
    assert!(out.ends_with(last), "{out}");
    for (bands, last) in [
        ("pfifo_fast", "parent 1:1 handle 10: pfifo_fast\n"),
        ("prio", "parent 1:1 handle 10: prio bands 5 priomap 0 0 4 3 2 1 0 0 0 0 0 0 0 0 0 0\n"),
    ] {
        let (code, out, _) = set_up(&["--dev", "eth0", "--rate", "10Mbit", "--bands", bands]);
        assert!(code == 0 && out.lines().count() == 2 && out.ends_with(last), "{out}");
    }
    for (dev, rate, said) in [
        ("eth0 root; reboot", "10Mbit", "isn't the name of a device"),
        ("-x", "10Mbit", "isn't the name of a device"),
        ("eth0", "10MB", "write such as 10Mbit"),
        ("eth0", "1kbit", "from 64kbit to 400Gbit"),
        ("eth0", "1000Gbit", "from 64kbit to 400Gbit"),
    ] {
        let (code, out, error) = set_up(&[&format!("--dev={dev}"), "--rate", rate]);
        assert!(code == 2 && out.is_empty() && error.contains(said), "{code} {error}");
    }
    // The empty environment has no PATH, but a search for `tc` has a default.
    let (code, _, error) = set_up(&["--dev", "none0", "--rate", "10Mbit", "--apply"]);
    assert!(code == 1 && error.contains("tc"), "{error}");
}
