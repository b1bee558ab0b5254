//! pgbench, PostgreSQL's own client, through the gatekeeper: every protocol, with 0 failed transactions and
//! books that balance. Runs are counted in transactions, never in seconds.

mod support;

use std::process::Command;

use support::{CONNECTIONS, Stack};

/// Clients of each run: several times the server connections that they share.
const CLIENTS: u32 = 4 * CONNECTIONS;
/// Transactions of each client in a run.
const TRANSACTIONS: u32 = 50;

fn pgbench(stack: &Stack, arguments: &[&str]) -> String {
    let mut program = Command::new(stack.server.binaries().program("pgbench"));
    program.args(arguments);
    stack.check(program)
}

/// Runs one workload and asserts that every transaction was done and none failed.
fn run(stack: &Stack, arguments: &[&str]) {
    let (clients, transactions) = (CLIENTS.to_string(), TRANSACTIONS.to_string());
    // Few threads: pgbench prepares with calls that block their thread, which also serves the clients whose
    // transactions hold the connections.
    let mut all = vec!["-n", "-c", &clients, "-j", "2", "-t", &transactions];
    all.extend(arguments);
    let printed = pgbench(stack, &all);
    let total = CLIENTS * TRANSACTIONS;
    let processed = format!("number of transactions actually processed: {total}/{total}");
    assert!(printed.contains(&processed), "{arguments:?}: {printed}");
    // Servers before version 15 don't print this line; there a failure ends the client, hence the count
    // above.
    if printed.contains("number of failed transactions") {
        assert!(printed.contains("number of failed transactions: 0 ("), "{arguments:?}: {printed}");
    }
}

/// Asserts that accounts, tellers, branches and the history agree after this many runs of TPC-B.
fn assert_balanced(stack: &Stack, runs: u32) {
    let sums =
        "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
             AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) FROM pgbench_history)
             AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history),
                 (SELECT count(*) FROM pgbench_history)";
    let found = stack.server.psql(sums).expect("the server answers");
    assert_eq!(found, format!("t|{}", runs * CLIENTS * TRANSACTIONS));
}

#[test]
fn pgbench_fails_no_transaction_in_any_protocol() {
    let stack = Stack::start();
    pgbench(&stack, &["-i", "-q", "-s", "2"]);
    for (index, protocol) in (1..).zip(["simple", "extended", "prepared"]) {
        run(&stack, &["-M", protocol]);
        run(&stack, &["-M", protocol, "-S"]);
        assert_balanced(&stack, index);
    }
}

#[test]
fn thirty_clients_of_two_threads_prepare_over_twenty_connections() {
    let stack = Stack::start_gate_with_connections(20);
    pgbench(&stack, &["-i", "-q", "-s", "2"]);
    let printed = pgbench(&stack, &["-n", "-M", "prepared", "-c", "30", "-j", "2", "-t", "100"]);
    assert!(printed.contains("number of transactions actually processed: 3000/3000"), "{printed}");
    let history = stack.server.psql("SELECT count(*) FROM pgbench_history").expect("the server answers");
    assert_eq!(history, "3000");
}

#[test]
fn pgbench_pipelines_and_reconnects() {
    let stack = Stack::start();
    pgbench(&stack, &["-i", "-q", "-s", "2"]);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let script = directory.path().join("pipeline.sql");
    let text = "\\set id random(1, 200000)\n\\startpipeline\nBEGIN;\n\
                SELECT abalance FROM pgbench_accounts WHERE aid = :id;\n\
                UPDATE pgbench_accounts SET abalance = abalance + 0 WHERE aid = :id;\nCOMMIT;\n\
                SELECT 1;\n\\endpipeline\n";
    std::fs::write(&script, text).expect("the script is written");
    let script = script.to_str().expect("the path is Unicode");
    run(&stack, &["-M", "extended", "-f", script]);
    run(&stack, &["-M", "prepared", "-f", script]);
    // A login for each transaction.
    run(&stack, &["-S", "-C"]);
}
