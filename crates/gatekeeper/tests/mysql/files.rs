//! LOAD DATA LOCAL: a file of the client's passes to the server.

use std::io::Write as _;
use std::process::Command as Process;
use std::time::Duration;

use wire::mysql::capabilities::Capabilities;
use wire::mysql::codec::{self, MAX_PAYLOAD, Sequence};
use wire::mysql::command::{Command, Query};
use wire::mysql::response::Part;

use crate::pitfalls::one;
use crate::session::{Answer, Secret, Session};
use crate::stage::{Stage, capabilities, query};
use crate::support;

/// Loads a file in these pieces, in which the table's column ends with its line.
fn load(session: &mut Session, table: &str, pieces: &[&[u8]]) -> Answer {
    let sql = format!("LOAD DATA LOCAL INFILE 'any' INTO TABLE {table}");
    session.command_with_file(&Command::Query(Query { attributes: &[], sql: sql.as_bytes() }), pieces)
}

#[test]
fn a_file_of_the_client_is_loaded_among_other_statements() {
    let stage = one();
    let (mut session, mut other) = (stage.client(), stage.client());
    session.query("CREATE OR REPLACE TABLE loaded (v INT, w VARCHAR(9))");
    let answer = load(&mut session, "loaded", &[b"1\ta\n2\t", b"b\n", b"3\tc\n"]);
    assert_eq!(answer.ok(capabilities()).affected, 3);
    assert_eq!(other.query("SELECT SUM(v) FROM loaded").rows(), "6");
    // Without a byte, and twice in one text.
    assert_eq!(load(&mut session, "loaded", &[]).ok(capabilities()).affected, 0);
    let twice = "SELECT 1; LOAD DATA LOCAL INFILE 'a' INTO TABLE loaded; \
                 LOAD DATA LOCAL INFILE 'b' INTO TABLE loaded; SELECT COUNT(*) FROM loaded";
    let twice = Command::Query(Query { attributes: &[], sql: twice.as_bytes() });
    let answer = session.command_with_file(&twice, &[b"4\td\n"]);
    assert_eq!((answer.rows(), answer.count(|part| *part == Part::File)), ("1\n5".to_owned(), 2));
    // In a transaction.
    session.query("BEGIN");
    load(&mut session, "loaded", &[b"5\te\n"]);
    session.query("ROLLBACK");
    assert_eq!(other.query("SELECT COUNT(*) FROM loaded").rows(), "5");
    assert_eq!(stage.gate.status()["connections_pinned"], 0);
}

#[test]
fn an_error_in_the_middle_of_a_file_is_told_behind_it() {
    let stage = one();
    let mut session = stage.client();
    session.query("CREATE OR REPLACE TABLE refused (v INT PRIMARY KEY)");
    // With LOCAL a row that can't be stored is only warned of.
    let trigger = "CREATE TRIGGER refusing BEFORE INSERT ON refused FOR EACH ROW IF NEW.v = 10000 THEN \
                   SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1644; END IF";
    session.query(trigger).ok(capabilities());
    let lines = (0..20_000).map(|at| format!("{at}\n")).collect::<String>();
    let pieces: Vec<&[u8]> = lines.as_bytes().chunks(1_000).collect();
    assert_eq!(load(&mut session, "refused", &pieces).error().code, 1644);
    assert_eq!(session.query("SELECT COUNT(*) FROM refused").rows(), "0");
    // The table isn't there: the server asks for no file.
    assert_eq!(load(&mut session, "nowhere", &[b"1\n"]).error().code, 1146);
    let two = "LOAD DATA LOCAL INFILE 'a' INTO TABLE refused; SELECT 1";
    let two = Command::Query(Query { attributes: &[], sql: two.as_bytes() });
    let answer = session.command_with_file(&two, &[b"1\n10000\n"]);
    assert_eq!(answer.error().code, 1644);
    assert_eq!(session.query("SELECT 2").rows(), "2");
}

#[test]
fn packets_of_every_length_pass_to_the_server() {
    let stage = one();
    let mut session = stage.client();
    session.query("CREATE OR REPLACE TABLE long_packets (v VARCHAR(4096))");
    let lines = |length: usize| {
        let line = [vec![b'a'; 4_095], vec![b'\n']].concat();
        let mut lines: Vec<u8> = line.iter().copied().cycle().take(length - 1).collect();
        lines.push(b'\n');
        lines
    };
    // A packet of 16 MB − 1 is followed by an empty one that doesn't end the file.
    let (full, longer) = (lines(MAX_PAYLOAD), lines(MAX_PAYLOAD + 10));
    let answer = load(&mut session, "long_packets", &[&full, b"c\n", &longer, b"d\n"]);
    let bytes = full.len() + longer.len() + 4;
    let rows = answer.ok(capabilities()).affected;
    let told = session.query("SELECT COUNT(*), SUM(LENGTH(v) + 1), SUM(v = 'd') FROM long_packets").rows();
    assert_eq!(told, format!("{rows}\t{bytes}\t1"));
    session.query("DROP TABLE long_packets");
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_file_leaves_nothing_behind() {
    let stage = one();
    stage.client().query("CREATE OR REPLACE TABLE left_off (v INT)");
    let begin = |session: &mut Session| {
        session.send(&query("LOAD DATA LOCAL INFILE 'any' INTO TABLE left_off"));
        let mut asked = [0; 8];
        std::io::Read::read_exact(&mut session.stream, &mut asked).unwrap();
        assert_eq!(asked, *b"\x04\0\0\x01\xfbany");
    };
    let mut piece = bytes::BytesMut::new();
    codec::write(&mut piece, Sequence(2), b"1\n2\n");
    // Before the file, behind a packet, and within one.
    for sent in [0, piece.len(), piece.len() - 1] {
        let mut session = stage.client();
        begin(&mut session);
        session.send(&piece[..sent]);
        stage.until("in_flight", 1);
        drop(session);
        stage.until("in_flight", 0);
        assert_eq!(stage.client().query("SELECT COUNT(*) FROM left_off").rows(), "0", "{sent}");
    }
    // A packet out of order ends the session, and the file isn't loaded.
    let mut session = stage.client();
    begin(&mut session);
    let mut late = bytes::BytesMut::new();
    codec::write(&mut late, Sequence(7), b"1\n");
    session.send(&late);
    assert_eq!(std::io::Read::read(&mut session.stream, &mut [0; 9]).unwrap(), 0);
    assert_eq!(stage.client().query("SELECT COUNT(*) FROM left_off").rows(), "0");
}

#[test]
fn a_client_that_is_silent_within_its_file_is_ended_and_so_is_one_that_is_killed() {
    let stage = Stage::start(&["connections = 1", "message_timeout = \"300ms\""], "");
    stage.client().query("CREATE OR REPLACE TABLE silent (v INT)");
    let begin = |session: &mut Session| {
        session.send(&query("LOAD DATA LOCAL INFILE 'any' INTO TABLE silent"));
        std::io::Read::read_exact(&mut session.stream, &mut [0; 8]).unwrap();
    };
    let mut session = stage.client();
    begin(&mut session);
    assert_eq!(std::io::Read::read(&mut session.stream, &mut [0; 9]).unwrap(), 0);
    stage.until("in_flight", 0);
    let stage = Stage::start(&["connections = 1"], "");
    let (mut session, mut killer) = (stage.client(), stage.client());
    begin(&mut session);
    stage.until("in_flight", 1);
    killer.query(&format!("KILL {}", session.connection)).ok(capabilities());
    assert_eq!(std::io::Read::read(&mut session.stream, &mut [0; 9]).unwrap(), 0);
    stage.until("in_flight", 0);
    assert_eq!(killer.query("SELECT COUNT(*) FROM silent").rows(), "0");
}

#[test]
fn a_file_that_the_server_does_not_take_waits_with_the_client() {
    let stage = one();
    let mut direct = stage.direct();
    direct.query("CREATE OR REPLACE TABLE held_up (v INT PRIMARY KEY, w VARCHAR(1000))");
    direct.query("BEGIN");
    direct.query("INSERT INTO held_up VALUES (1, 'locked')");
    let mut session = stage.client();
    session.send(&query("LOAD DATA LOCAL INFILE 'any' INTO TABLE held_up"));
    std::io::Read::read_exact(&mut session.stream, &mut [0; 8]).unwrap();
    session.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    // The server waits for the lock of its first row, and so do the gate and its client.
    let (mut number, mut sent) = (1, 0);
    loop {
        let lines = (0..64).map(|at| format!("{}\t{}\n", number * 64 + at - 63, "w".repeat(1_000)));
        let mut packet = bytes::BytesMut::new();
        codec::write(&mut packet, Sequence((number + 1) as u8), lines.collect::<String>().as_bytes());
        let Ok(()) = session.stream.write_all(&packet) else { break };
        (number, sent) = (number + 1, sent + packet.len());
        assert!(sent < 32 << 20, "nobody holds the client up");
    }
    assert_eq!(stage.gate.status()["in_flight"], 1);
    // A client that leaves is noticed, though much that it has sent waits to be read.
    drop(session);
    stage.until("in_flight", 0);
    direct.query("COMMIT");
    assert_eq!(stage.client().query("SELECT COUNT(*) FROM held_up").rows(), "1");
}

/// The thread of the server that loads a file into a table.
fn loader(stage: &Stage, table: &str) -> String {
    let asked = format!("SELECT id FROM information_schema.processlist WHERE info LIKE 'LOAD DATA%{table}'");
    let mut witness = stage.direct();
    let mut thread = String::new();
    stage.until_holds("the server loads", || {
        thread = witness.query(&asked).rows();
        !thread.is_empty()
    });
    thread
}

#[test]
fn a_client_is_told_of_a_server_that_is_lost_behind_its_file_and_cut_off_within() {
    let stage = Stage::start(&["connections = 1", "message_timeout = \"1h\""], "");
    let mut direct = stage.direct();
    direct.query("CREATE OR REPLACE TABLE cut_short (v INT PRIMARY KEY)");
    let begin = |end: &[u8]| {
        let mut session = stage.client();
        session.send(&query("LOAD DATA LOCAL INFILE 'any' INTO TABLE cut_short"));
        std::io::Read::read_exact(&mut session.stream, &mut [0; 8]).unwrap();
        let mut pieces = bytes::BytesMut::new();
        codec::write(&mut pieces, Sequence(2), b"1\n");
        pieces.extend_from_slice(end);
        session.send(&pieces);
        session
    };
    let heard = |mut session: Session| {
        let mut heard = Vec::new();
        // A connection may be reset, as that of a server.
        let _ = std::io::Read::read_to_end(&mut session.stream, &mut heard);
        heard
    };
    let session = begin(b"");
    direct.query(&format!("KILL {}", loader(&stage, "cut_short")));
    let told = heard(session);
    assert!(told.is_empty() || told.get(4) == Some(&0xff), "{told:?}");
    // The server waits for the lock of the row.
    direct.query("BEGIN");
    direct.query("INSERT INTO cut_short VALUES (1)");
    let session = begin(b"\0\0\0\x03");
    // It has the row, so the gate has passed the file on, and its end with it.
    let thread = loader(&stage, "cut_short");
    let waits = format!(
        "SELECT COUNT(*) FROM information_schema.innodb_trx \
         WHERE trx_state = 'LOCK WAIT' AND trx_mysql_thread_id = {thread}"
    );
    let mut witness = stage.direct();
    stage.until_holds("the server waits for the row", || {
        // InnoDB renews that table only if nobody has read it for a tenth of a second.
        witness.query("DO SLEEP(0.2)");
        witness.query(&waits).rows() == "1"
    });
    direct.query(&format!("KILL {thread}"));
    let told = heard(session);
    let [_, _, _, number, 0xff, low, high, ..] = told[..] else { panic!("{told:?}") };
    assert_eq!((number, u16::from_le_bytes([low, high])), (4, 2013));
    stage.until("in_flight", 0);
}

#[test]
fn a_client_that_leaves_is_noticed_though_much_that_it_has_sent_waits() {
    let stage = one();
    // A query, and a part of another of a megabyte.
    let send = |session: &mut Session, sql: &str| {
        session.send(&query(sql));
        session.send(b"\0\0\x10\0\x03");
        session.send(&[b' '; 150_000]);
    };
    let (mut running, mut queued) = (stage.client(), stage.client());
    send(&mut running, "SELECT SLEEP(1000)");
    stage.until("in_flight", 1);
    send(&mut queued, "SELECT 1");
    stage.until("queued", 1);
    drop(queued);
    stage.until("queued", 0);
    assert_eq!(stage.gate.status()["in_flight"], 1);
    drop(running);
    stage.until("in_flight", 0);
}

#[test]
fn a_client_that_did_not_offer_files_is_asked_for_none() {
    let stage = one();
    stage.client().query("CREATE OR REPLACE TABLE closed (v INT)");
    let user = (stage.server.user(), Secret::Password(stage.server.password()));
    let without = capabilities().without(Capabilities::LOCAL_FILES);
    let mut session = Session::login(&stage.socket(), user, without).unwrap();
    assert!([1148, 4166].contains(&load(&mut session, "closed", &[b"1\n"]).error().code));
    // A session that did has another connection.
    assert_eq!(load(&mut stage.client(), "closed", &[b"1\n"]).ok(capabilities()).affected, 1);
}

#[test]
fn mariadbs_client_and_pymysql_load_their_files() {
    let stage = Stage::over_tcp(&["connections = 2"], "");
    stage.client().query("CREATE OR REPLACE TABLE by_clients (v INT, w VARCHAR(20))");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for line in 0..100_000 {
        writeln!(file, "{line}\tline {line}").unwrap();
    }
    let load = format!("LOAD DATA LOCAL INFILE '{}' INTO TABLE by_clients", file.path().display());
    let port = stage.gate.port().to_string();
    let output = Process::new("mariadb")
        .args(["--no-defaults", "--local-infile=1", "--host=127.0.0.1", "--port", &port])
        .args(["--user", stage.server.user(), "--database", "witness", "--execute", &load])
        .env("MYSQL_PWD", stage.server.password())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let script = "import os, pymysql\n\
                  c = pymysql.connect(host='127.0.0.1', port=int(os.environ['PORT']), user=os.environ['USER'],\n\
                      password=os.environ['PASSWORD'], database='witness', local_infile=True, autocommit=True)\n\
                  print(c.cursor().execute(os.environ['LOAD']))\n";
    let output = Process::new(support::target_directory().join("python/bin/python"))
        .args(["-c", script])
        .envs([("PORT", port.as_str()), ("USER", stage.server.user()), ("LOAD", &load)])
        .env("PASSWORD", stage.server.password())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "100000");
    let asked = "SELECT COUNT(*), SUM(v), COUNT(DISTINCT w) FROM by_clients";
    assert_eq!(stage.client().query(asked).rows(), "200000\t9999900000\t100000");
}
