//! A gate that has never seen anything is sent forty reports at once: they don't fill the connections, and
//! a statement that it has never seen either is answered while they run.

mod gate;
mod support;

use gate::Scene;
use gate::client::{Client, query, synced};

/// How many reports are sent.
const REPORTS: usize = 40;
/// How many of them may be in flight in the lane of the long ones.
const LONG_LIMIT: usize = 2;

/// Sends the reports, and then shorts from a client that has said nothing before.
fn reports_hold_nobody_up(user: &str, report: &[u8]) {
    let scene = Scene::start(user, &["connections = 8", &format!("long_limit = {LONG_LIMIT}")]);
    let mut clients: Vec<Client> = (0..REPORTS).map(|_| scene.client()).collect();
    let mut newcomer = scene.client();
    let before = scene.lasting_processes();
    for client in &mut clients {
        client.send(report);
    }
    let reports = || scene.processes_where("state = 'active' AND query LIKE '%a report%'").len();
    scene.until("all reports have arrived, and some run", || {
        let status = scene.gate.status();
        let arrived = status["queued"].as_u64().zip(status["in_flight"].as_u64()).map(|(a, b)| a + b);
        arrived == Some(REPORTS as u64) && reports() > 0
    });

    // Each of these would wait for the end of a report, which never comes, if it waited for any.
    assert_eq!(newcomer.query("SELECT 1"), "T D(1) C(SELECT 1) Z(I)");
    for number in 0..20 {
        // Another shape, and so a type that is unknown, each time. (One that is known may be known as long
        // on a machine that has other things to do.)
        let unknown = format!("SELECT 1{}", ", 1".repeat(number + 1));
        assert!(newcomer.ask(&synced(&unknown)).ends_with("C(SELECT 1) Z(I)"));
    }
    // The lane's, and one that went ahead to learn what its type costs.
    scene.until("what was let in runs", || scene.figure("in_flight") == reports() as u64);
    let (running, status) = (reports(), scene.gate.status());
    assert!((1..=LONG_LIMIT + 1).contains(&running), "{running} reports run\n{status:#}");
    assert_eq!(status["queued"].as_u64(), Some((REPORTS - running) as u64), "{status:#}");
    assert_eq!(status["requests"]["rejected_total"], 0, "{status:#}");

    // A request that waits is canceled first, so that no other report starts; then whatever still runs.
    for client in &clients {
        client.cancel(scene.gate.port());
    }
    scene.until("every report is canceled", || {
        clients.iter().for_each(|client| client.cancel(scene.gate.port()));
        scene.figure("in_flight") == 0 && scene.figure("queued") == 0
    });
    for client in &mut clients {
        let answers = client.answers();
        assert!(answers.ends_with("E(57014) Z(I)"), "{answers}");
    }
    scene.assert_whole(&before);
}

#[test]
fn forty_sleeping_reports_hold_no_first_statement_up() {
    reports_hold_nobody_up("sleepers", &query("SELECT 'a report', pg_sleep(600)"));
}

#[test]
fn forty_computing_reports_hold_no_first_statement_up() {
    let report = "SELECT 'a report', count(*) FROM generate_series(1, 1000000000000) AS number";
    reports_hold_nobody_up("computers", &synced(report));
}
