//! Service classes before a real MariaDB.

use std::thread;

use crate::session::Session;
use crate::stage::Stage;

const TWO: &str = r#"
[[gate.class]]
name = "shop"
weight = 3
user = "shop"

[[gate.class]]
name = "reports"
user = "report_*"
"#;
/// The users of both applications.
const USERS: &str = "\"shop\" \"s\"\n\"report_7\" \"r\"\n";

fn stage(lines: &[&str]) -> Stage {
    let stage = Stage::start(lines, USERS);
    stage
        .server
        .query(
            "CREATE USER IF NOT EXISTS shop IDENTIFIED BY 's'; GRANT ALL ON *.* TO shop;
             CREATE USER IF NOT EXISTS report_7 IDENTIFIED BY 'r'; GRANT ALL ON *.* TO report_7;
             CREATE DATABASE IF NOT EXISTS elsewhere",
        )
        .unwrap();
    stage
}

/// One number of one class in `/status`.
fn of(stage: &Stage, class: &str, key: &str) -> f64 {
    let status = stage.gate.status();
    let classes = status["classes"].as_array().unwrap();
    classes.iter().find(|known| known["class"] == class).and_then(|known| known[key].as_f64()).unwrap()
}

#[test]
fn units_belong_to_classes_by_user_database_application_type_and_tag() {
    let rules = r#"
        [[gate.class]]
        name = "tagged"
        tag = "job=nightly"
        [[gate.class]]
        name = "type"
        type = "witness: select ? + ?"
        [[gate.class]]
        name = "elsewhere"
        database = "elsewhere"
        application = "wire"
    "#;
    let stage = stage(&["connections = 2", &format!("{TWO}{rules}")]);
    let mut plain = stage.client();
    let (mut shop, mut report) = (stage.login("shop", "s").unwrap(), stage.login("report_7", "r").unwrap());
    let check = |session: &mut Session, sql: &str, class: &str| {
        let before = of(&stage, class, "dispatched_total");
        session.query(sql);
        let after = of(&stage, class, "dispatched_total");
        assert!((after - before - 1.0).abs() < 0.1, "{sql} should be of {class}: {}", stage.gate.status());
    };
    check(&mut plain, "SELECT 1", "default");
    check(&mut plain, "SELECT 1 /*job='nightly'*/", "tagged");
    check(&mut plain, "SELECT 1 + 2", "type");
    check(&mut plain, "USE elsewhere", "default");
    check(&mut plain, "SELECT 1 + 2", "elsewhere");
    check(&mut shop, "SELECT 1 /*job='nightly'*/", "shop");
    check(&mut report, "SELECT 1", "reports");
    let metrics = stage.gate.metrics();
    assert!(metrics.contains("gatekeeper_class_weight{gate=\"mysql\",class=\"shop\"} 3"), "{metrics}");
    // Who asks for a type is told by the same names.
    let types = stage.gate.types();
    let mut types = types.as_array().unwrap().iter();
    let asked = &types.find(|known| known["type"] == "elsewhere: select ? + ?").unwrap()["asked_by"];
    assert_eq!((&asked[0]["application"], &asked[0]["requests"]), (&"wire".into(), &1.into()), "{asked}");
}

#[test]
fn a_full_queue_of_one_user_refuses_only_its_own() {
    let stage = stage(&["connections = 1", "queue_max = 2", "long_limit = 0", TWO]);
    let mut sessions: Vec<Session> = (0..3).map(|_| stage.login("report_7", "r").unwrap()).collect();
    let mut shop = stage.login("shop", "s").unwrap();
    let mut holder = sessions.pop().unwrap();
    holder.query("START TRANSACTION");
    holder.query("SELECT 1");
    let (mut second, mut first) = (sessions.pop().unwrap(), sessions.pop().unwrap());
    let first = thread::spawn(move || first.query("SELECT 1").rows());
    stage.until("queued", 1);
    let second = thread::spawn(move || second.query("SELECT 2").error());
    stage.until("queued", 2);
    let served = thread::spawn(move || shop.query("SELECT 3").rows());
    let told = second.join().unwrap();
    assert_eq!((told.code, told.state.as_str()), (1205, "HY000"));
    assert!(told.message.contains("requests like this one have more than their share"), "{}", told.message);
    holder.query("COMMIT");
    assert_eq!((first.join().unwrap().as_str(), served.join().unwrap().as_str()), ("1", "3"));
    assert!((of(&stage, "reports", "over_share_total") - 1.0).abs() < 0.1);
    assert!(of(&stage, "shop", "rejected_total") < 0.1);
}

#[test]
fn a_refusal_says_that_the_queue_is_full_and_what_it_waited_for() {
    let stage = stage(&["connections = 1", "queue_max = 0", "long_limit = 0", TWO, "background = true"]);
    stage.server.query("CREATE OR REPLACE TABLE witness.waited_for (v INT)").unwrap();
    for (user, password, why, key) in [
        ("shop", "s", "The only server connection is busy.", "(connections)"),
        ("report_7", "r", "Requests of other classes go first.", "(weight, background)"),
    ] {
        let [mut busy, mut refused] = [0, 1].map(|_| stage.login(user, password).unwrap());
        let mut lock = stage.direct();
        lock.query("LOCK TABLES waited_for WRITE");
        let waits = thread::spawn(move || busy.query("SELECT COUNT(*) FROM waited_for").rows());
        stage.until("in_flight", 1);
        let told = refused.query("SELECT 1").error().message;
        assert!(told.contains("the queue is full (queue_max); try it again. "), "{told}");
        assert!(told.contains(why) && told.contains(key), "{told}");
        lock.query("UNLOCK TABLES");
        assert_eq!(waits.join().unwrap(), "0");
        stage.until("in_flight", 0);
    }
}

#[test]
fn two_backlogged_users_are_served_by_their_weights() {
    const OF_EACH: usize = 40;
    let stage = stage(&["connections = 1", "capacity = \"none\"", "long_limit = 0", TWO]);
    stage
        .server
        .query("CREATE OR REPLACE TABLE witness.ran (at INT AUTO_INCREMENT PRIMARY KEY, v TEXT)")
        .unwrap();
    let mut sessions = Vec::new();
    for _ in 0..OF_EACH {
        sessions.push((
            stage.login("shop", "s").unwrap(),
            "INSERT INTO witness.ran (v) SELECT 'shop' FROM (SELECT SLEEP(0.02)) AS s",
        ));
        sessions.push((
            stage.login("report_7", "r").unwrap(),
            "INSERT INTO witness.ran (v) SELECT 'report' FROM (SELECT SLEEP(0.02)) AS s",
        ));
    }
    let mut holder = stage.client();
    holder.query("START TRANSACTION");
    holder.query("SELECT 1");
    let running = sessions.into_iter().map(|(mut session, sql)| thread::spawn(move || session.query(sql)));
    let running: Vec<_> = running.collect();
    stage.until("queued", 2 * OF_EACH as u64);
    holder.query("COMMIT");
    for served in running {
        served.join().unwrap();
    }
    let count =
        "SELECT COUNT(*) FROM (SELECT v FROM witness.ran ORDER BY at LIMIT 40) AS first WHERE v = 'shop'";
    let shops: usize = stage.server.query(count).unwrap().trim().parse().unwrap();
    assert!((27..=33).contains(&shops), "{shops} of 40, and 30 are its share");
}

#[test]
fn goals_and_weights_change_in_a_running_gate() {
    let stage = stage(&["connections = 2", TWO]);
    let mut shop = stage.login("shop", "s").unwrap();
    shop.query("SELECT 1");
    let lines = |more: &str| {
        let file = stage.users_file().display().to_string();
        let own = ["protocol = \"mysql\"".to_owned(), format!("users_file = {file:?}")];
        [own.as_slice(), &["connections = 2".to_owned(), more.to_owned()]].concat()
    };
    stage.gate.reconfigure(&lines(&TWO.replace("weight = 3", "weight = 7\ngoal = \"50ms\"")));
    stage.gate.signal("HUP");
    stage.until_holds("the goal is known", || {
        let status = stage.gate.status();
        let classes = status["classes"].as_array().unwrap();
        classes.iter().any(|known| known["class"] == "shop" && known["goal"] == "50ms")
    });
    assert_eq!(shop.query("SELECT 1").rows(), "1");
}

#[test]
fn a_user_that_floods_goes_before_another_one_with_one_request_of_each_of_its_queues() {
    let tenants = "[[gate.class]]\nname = \"default\"\ntenant = \"user\"";
    let stage = stage(&["connections = 3", "long_limit = 0", tenants]);
    stage
        .server
        .query("CREATE OR REPLACE TABLE witness.turns (at INT AUTO_INCREMENT PRIMARY KEY, v TEXT)")
        .unwrap();
    let users = [["report_7"; 12].as_slice(), &["shop"]].concat();
    let sessions: Vec<_> = users.into_iter().map(|user| stage.login(user, &user[..1]).unwrap()).collect();
    let mut holders = [stage.client(), stage.client(), stage.client()];
    for holder in &mut holders {
        holder.query("START TRANSACTION");
        holder.query("SELECT 1");
    }
    let mut running = Vec::new();
    for (mut session, queued) in sessions.into_iter().zip(1..) {
        running.push(thread::spawn(move || {
            session.query("INSERT INTO witness.turns (v) VALUES (SUBSTRING_INDEX(CURRENT_USER(), '@', 1))");
        }));
        stage.until("queued", queued);
    }
    // The others go on holding theirs, so that one after another is served.
    holders[0].query("COMMIT");
    for served in running {
        served.join().unwrap();
    }
    let at = stage.server.query("SELECT at FROM witness.turns WHERE v = 'shop'").unwrap();
    assert!(at.trim().parse::<u32>().is_ok_and(|at| at <= 5), "the {at}th of 13");
}
