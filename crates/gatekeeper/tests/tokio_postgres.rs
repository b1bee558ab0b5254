//! tokio-postgres through the gatekeeper in transaction mode: pipelines from one client, transactions,
//! prepared statements, portals, COPY both ways, cancel, and a hundred clients over four server
//! connections.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use futures_util::{SinkExt, StreamExt, TryStreamExt};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, IsolationLevel, NoTls, SimpleQueryMessage};

use support::{CONNECTIONS, Stack, until};

/// One stack for the tests that run at the same time, gone with the last of them.
static SHARED: Mutex<Weak<Stack>> = Mutex::new(Weak::new());

fn shared() -> Arc<Stack> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let stack = Arc::new(Stack::start());
        *shared = Arc::downgrade(&stack);
        stack
    })
}

/// A session, whose connection runs as a task of its own until the client is dropped.
async fn session(dsn: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(dsn, NoTls).await.expect("the login succeeds");
    tokio::spawn(connection);
    client
}

fn code(error: &Error) -> &SqlState {
    error.code().unwrap_or_else(|| panic!("not an error of the server: {error:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_refused_with_the_servers_own_code() {
    let stack = shared();
    let dsn = stack.dsn().replace(stack.server.password(), "wrong");
    let Err(error) = tokio_postgres::connect(&dsn, NoTls).await else {
        panic!("a wrong password was let in")
    };
    assert_eq!(*code(&error), SqlState::INVALID_PASSWORD);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_of_one_client_are_pipelined_in_order() {
    let stack = shared();
    let client = session(&stack.dsn()).await;
    let statement = client.prepare("SELECT $1::int4 * 2").await.expect("it prepares");
    let parameters: Vec<i32> = (0..500).collect();
    let queries = parameters.iter().map(|number| {
        let statement = &statement;
        let client = &client;
        async move { client.query_one(statement, &[number]).await.map(|row| row.get::<_, i32>(0)) }
    });
    let values = try_join_all(queries).await.expect("every query succeeds");
    assert!(values.iter().zip(&parameters).all(|(value, number)| *value == number * 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_in_a_pipeline_fails_its_own_query_only() {
    let stack = shared();
    let client = session(&stack.dsn()).await;
    let statement = client.prepare("SELECT 60 / $1::int4").await.expect("it prepares");
    let divisors = [1, 0, 2, 0, 3, 0, 4, 5, 0, 6];
    let results = join_all(divisors.iter().map(|divisor| {
        let (client, statement) = (&client, &statement);
        async move { client.query_one(statement, &[divisor]).await.map(|row| row.get::<_, i32>(0)) }
    }))
    .await;
    for (divisor, result) in divisors.iter().zip(results) {
        match result {
            Ok(value) => assert_eq!(value, 60 / divisor),
            Err(error) => {
                assert_eq!(*divisor, 0);
                assert_eq!(*code(&error), SqlState::DIVISION_BY_ZERO);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_keep_their_options_and_savepoints() {
    let stack = shared();
    let mut client = session(&stack.dsn()).await;
    client.batch_execute("CREATE TABLE kept (a int4)").await.expect("the table is created");
    let levels = [
        (IsolationLevel::ReadCommitted, "read committed"),
        (IsolationLevel::RepeatableRead, "repeatable read"),
        (IsolationLevel::Serializable, "serializable"),
    ];
    for (level, name) in levels {
        let builder = client.build_transaction().isolation_level(level).read_only(true).deferrable(true);
        let transaction = builder.start().await.expect("it starts");
        let row = transaction.query_one("SHOW transaction_isolation", &[]).await.expect("it shows");
        assert_eq!(row.get::<_, &str>(0), name);
        let refused = transaction.execute("INSERT INTO kept VALUES (1)", &[]).await.expect_err("read only");
        assert_eq!(*code(&refused), SqlState::READ_ONLY_SQL_TRANSACTION);
        let failed = transaction.query("SELECT 1", &[]).await.expect_err("the transaction has failed");
        assert_eq!(*code(&failed), SqlState::IN_FAILED_SQL_TRANSACTION);
        transaction.rollback().await.expect("it rolls back");
    }
    let mut outer = client.transaction().await.expect("it starts");
    // The first savepoint comes before the first statement.
    let inner = outer.transaction().await.expect("a savepoint");
    inner.execute("INSERT INTO kept VALUES (1)", &[]).await.expect("it inserts");
    inner.rollback().await.expect("it rolls back");
    let inner = outer.savepoint("named").await.expect("a savepoint");
    inner.execute("INSERT INTO kept VALUES ($1)", &[&2]).await.expect("it inserts");
    inner.commit().await.expect("it commits");
    outer.commit().await.expect("it commits");
    // Dropped in the middle: tokio-postgres sends ROLLBACK by itself.
    let dropped = client.transaction().await.expect("it starts");
    dropped.execute("INSERT INTO kept VALUES (3)", &[]).await.expect("it inserts");
    drop(dropped);
    let row = client.query_one("SELECT sum(a) FROM kept", &[]).await.expect("it sums");
    assert_eq!(row.get::<_, i64>(0), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_statements_of_many_sessions_share_few_connections() {
    let stack = shared();
    let dsn = stack.dsn();
    let sessions = join_all((0..3 * CONNECTIONS).map(|_| session(&dsn))).await;
    let mut statements = Vec::new();
    for (index, client) in sessions.iter().enumerate() {
        // Every session's first statement has the same name on the wire, `s0`, and a text of its own.
        let text = format!("SELECT $1::int8 + {index}");
        statements.push(client.prepare_typed(&text, &[Type::INT8]).await.expect("it prepares"));
    }
    for round in 0..5_i64 {
        let rows = join_all(sessions.iter().zip(&statements).map(|(client, statement)| async move {
            client.query_one(statement, &[&round]).await.expect("it runs").get::<_, i64>(0)
        }))
        .await;
        let expected: Vec<i64> = (0..i64::from(3 * CONNECTIONS)).map(|index| index + round).collect();
        assert_eq!(rows, expected);
    }
    // A dropped statement is closed on the wire; the others stay.
    statements.truncate(1);
    let again = sessions[1].prepare("SELECT 'again'::text").await.expect("it prepares");
    let row = sessions[1].query_one(&again, &[]).await.expect("it runs");
    assert_eq!(row.get::<_, &str>(0), "again");
    let row = sessions[0].query_one(&statements[0], &[&7_i64]).await.expect("it runs");
    assert_eq!(row.get::<_, i64>(0), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn portals_are_fetched_in_parts_within_their_transaction() {
    let stack = shared();
    let mut client = session(&stack.dsn()).await;
    let transaction = client.transaction().await.expect("it starts");
    let numbers = transaction.bind("SELECT generate_series(1, 100)", &[]).await.expect("it binds");
    let letters = transaction.bind("SELECT unnest(ARRAY['a', 'b', 'c'])", &[]).await.expect("it binds");
    let first = transaction.query_portal(&numbers, 10).await.expect("it fetches");
    let letter = transaction.query_portal(&letters, 2).await.expect("it fetches");
    let rest = transaction.query_portal(&numbers, 0).await.expect("it fetches");
    assert_eq!((first.len(), letter.len(), rest.len()), (10, 2, 90));
    assert_eq!(rest[0].get::<_, i32>(0), 11);
    transaction.commit().await.expect("it commits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_statements_in_one_message_answer_each() {
    let stack = shared();
    let client = session(&stack.dsn()).await;
    let text = "BEGIN; CREATE TABLE several_rs (a int4); INSERT INTO several_rs VALUES (1), (2); COMMIT; \
                SELECT a FROM several_rs ORDER BY a; DROP TABLE several_rs";
    let messages = client.simple_query(text).await.expect("all succeed");
    let rows: Vec<_> = messages
        .iter()
        .filter_map(|message| if let SimpleQueryMessage::Row(row) = message { row.get(0) } else { None })
        .collect();
    assert_eq!(rows, ["1", "2"]);
    let complete =
        messages.iter().filter(|message| matches!(message, SimpleQueryMessage::CommandComplete(_)));
    assert_eq!(complete.count(), 6);
    let error = client.simple_query("SELECT 1; SELECT 1/0; SELECT 2").await.expect_err("it fails");
    assert_eq!(*code(&error), SqlState::DIVISION_BY_ZERO);
    client.simple_query("").await.expect("an empty query");
    client.check_connection().await.expect("the session lives on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_goes_both_ways() {
    const ROWS: u64 = 100_000;
    let stack = shared();
    let client = session(&stack.dsn()).await;
    client.batch_execute("CREATE TABLE copied_rs (a int4, b text)").await.expect("the table is created");
    let mut sink = pin!(client.copy_in("COPY copied_rs FROM STDIN").await.expect("it starts"));
    for start in (0..ROWS).step_by(1000) {
        let block: String =
            (start..start + 1000).map(|number| format!("{number}\tline {number}\n")).collect();
        sink.send(Bytes::from(block)).await.expect("it is sent");
    }
    assert_eq!(sink.finish().await.expect("it ends"), ROWS);
    let stream = client.copy_out("COPY copied_rs TO STDOUT").await.expect("it starts");
    let lines = stream.map_ok(|data| data.iter().filter(|&&byte| byte == b'\n').count());
    let total = lines.try_fold(0, |sum, count| async move { Ok(sum + count) }).await.expect("it ends");
    assert_eq!(total as u64, ROWS);
    // Left in the middle: the sink sends CopyFail, and nothing was copied.
    let mut abandoned = Box::pin(client.copy_in("COPY copied_rs FROM STDIN").await.expect("it starts"));
    abandoned.send(Bytes::from_static(b"1\tx\n")).await.expect("it is sent");
    drop(abandoned);
    let row = client.query_one("SELECT count(*) FROM copied_rs", &[]).await.expect("it counts");
    assert_eq!(row.get::<_, i64>(0), ROWS as i64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_token_ends_a_running_statement_and_no_other() {
    let stack = shared();
    let client = session(&stack.dsn()).await;
    let bystander = session(&stack.dsn()).await;
    let watcher = session(&stack.server.dsn()).await;
    let token = client.cancel_token();
    for round in 0..3 {
        let text = format!("/* token-{round} */ SELECT pg_sleep(600)");
        let running = client.simple_query(&text);
        let cancelling = async {
            let seen = format!(
                "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE '/* token-{round} %'"
            );
            until("the statement runs", async || {
                !watcher.query(&seen, &[]).await.expect("the watcher sees").is_empty()
            })
            .await;
            token.cancel_query(NoTls).await.expect("the cancel is delivered");
        };
        let (result, ()) = tokio::join!(running, cancelling);
        assert_eq!(*code(&result.expect_err("it was cancelled")), SqlState::QUERY_CANCELED);
        bystander.simple_query("SELECT 1").await.expect("a bystander is not touched");
        client.simple_query("SELECT 1").await.expect("the session lives on");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_clients_share_four_connections() {
    let stack = shared();
    let dsn = stack.dsn();
    // The server itself has no room for all of them beside the other tests' when there is no gate.
    let clients = if support::direct() { 30 } else { 100 };
    let setup = session(&dsn).await;
    setup.batch_execute("CREATE TABLE hundred (id int4 PRIMARY KEY, n int4)").await.expect("a table");
    setup.execute("INSERT INTO hundred SELECT id, 0 FROM generate_series(0, 9) id", &[]).await.expect("rows");
    let sessions = join_all((0..clients).map(|_| session(&dsn))).await;
    let work = sessions.into_iter().enumerate().map(|(seed, mut client)| async move {
        let mut pids = Vec::new();
        for step in 0..10 {
            let transaction = client.transaction().await?;
            let id = i32::try_from((seed + step) % 10).expect("a digit");
            transaction.execute("UPDATE hundred SET n = n + 1 WHERE id = $1", &[&id]).await?;
            pids.push(transaction.query_one("SELECT pg_backend_pid()", &[]).await?.get::<_, i32>(0));
            transaction.commit().await?;
        }
        Ok::<_, Error>(pids)
    });
    let mut pids = try_join_all(work).await.expect("every transaction commits").concat();
    let row = setup.query_one("SELECT sum(n) FROM hundred", &[]).await.expect("it sums");
    assert_eq!(row.get::<_, i64>(0), clients * 10);
    pids.sort_unstable();
    pids.dedup();
    if stack.gate().is_some() {
        // Other tests' logins may replace a connection in between; without sharing there would be a hundred.
        assert!(pids.len() < 50, "the clients ran on {} server connections", pids.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_large_result_stream_through_flat_memory() {
    // A stack of its own: other tests' buffers are not counted.
    let stack = Stack::start();
    let client = session(&stack.dsn()).await;
    client.simple_query("SELECT 1").await.expect("it answers");
    let memory = support::FlatMemory::start(&stack);
    let text = "SELECT repeat('x', 10000) FROM generate_series(1, $1::int4)";
    let mut rows = pin!(client.query_raw(text, [10_500_i32]).await.expect("it starts"));
    let mut received = 0;
    while let Some(row) = rows.next().await {
        received += row.expect("a row").get::<_, &str>(0).len();
        if received % 5_000_000 == 0 {
            memory.assert_flat();
        }
    }
    assert_eq!(received, 105_000_000);
    memory.assert_flat();
}

/// Of 24 clients, each sets its tenant, and changes it in a nested transaction that fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nested_transactions_that_fail_leave_each_client_its_own_setting() {
    const ROUNDS: usize = 50;
    let stack = shared();
    let dsn = stack.dsn();
    let client = async |tenant: usize| -> Result<usize, Error> {
        let mut client = session(&dsn).await;
        client.batch_execute(&format!("SET app.tenant = '{tenant}'")).await?;
        let mut wrong = 0;
        for round in 0..ROUNDS {
            let mut outer = client.transaction().await?;
            let inner = outer.transaction().await?;
            inner.batch_execute(&format!("SET app.tenant = '{}'", tenant + round)).await?;
            inner.batch_execute("SELECT 1/0").await.expect_err("nobody divides by zero");
            inner.rollback().await?;
            outer.commit().await?;
            let row = client.query_one("SELECT current_setting('app.tenant')", &[]).await?;
            wrong += usize::from(row.get::<_, &str>(0) != tenant.to_string());
        }
        Ok(wrong)
    };
    let wrong = try_join_all((0..24).map(|tenant| client(100 * tenant))).await.expect("each runs");
    assert_eq!(wrong.iter().sum::<usize>(), 0, "reads of another tenant, of {}", 24 * ROUNDS);
}
