//! mysql_async: pools, text and binary results, transactions, several results, streams.

use futures_util::future::join_all;
use futures_util::{StreamExt as _, TryStreamExt as _};
use mysql_async::prelude::*;
use mysql_async::{Conn, Error, IsolationLevel, Opts, OptsBuilder, Pool, SslOpts, TxOpts, Value, params};

use crate::{Place, check, until};

fn options(place: &Place) -> OptsBuilder {
    let tls = place
        .authority
        .as_ref()
        .map(|file| SslOpts::default().with_root_certs(vec![std::path::PathBuf::from(file).into()]));
    OptsBuilder::default()
        .ip_or_hostname(place.host.clone())
        .tcp_port(place.port)
        .user(Some(place.user.clone()))
        .pass(Some(place.password.clone()))
        .db_name(Some(place.database.clone()))
        .prefer_socket(false)
        .ssl_opts(tls)
}

async fn connect(place: &Place) -> Conn {
    Conn::new(options(place)).await.expect("the login succeeds")
}

/// The number of the server's error.
fn number<T>(answer: Result<T, Error>) -> u16 {
    match answer {
        Err(Error::Server(error)) => error.code,
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("an error was due"),
    }
}

pub async fn run(place: &Place) {
    check("a right password is let in, a wrong one and an unknown database are refused", login(place)).await;
    check("values come back as they went, in text and in binary", values(place)).await;
    check("prepared statements of many sessions, more than the driver keeps", prepared(place)).await;
    check("batches, and the ids and numbers of rows that they made", batches(place)).await;
    check("several results, and a procedure", several(place)).await;
    check("every isolation level, read-only transactions, and what is rolled back", transactions(place))
        .await;
    check("an error leaves its session usable", errors(place)).await;
    check("a parameter of 20 MB, and rows that stream", large(place)).await;
    check("a running statement is killed by its id", kill(place)).await;
    check("a pool of many clients over few server connections", many(place)).await;
}

async fn login(place: &Place) {
    let mut conn = connect(place).await;
    let who: Option<(String, String)> = conn.query_first("SELECT CURRENT_USER(), DATABASE()").await.unwrap();
    println!("{who:?}");
    conn.ping().await.unwrap();
    conn.disconnect().await.unwrap();
    println!("{}", number(Conn::new(options(place).pass(Some("wrong"))).await));
    println!("{}", number(Conn::new(options(place).db_name(Some("no_such_database"))).await));
}

async fn values(place: &Place) {
    let mut conn = connect(place).await;
    conn.query_drop("CREATE TABLE a (a BIGINT UNSIGNED, b DOUBLE, c DATETIME(6), d BLOB, e TEXT, f DECIMAL(20,5), g TIME)")
        .await
        .unwrap();
    let row: Vec<Value> = vec![
        u64::MAX.into(),
        (-1.5).into(),
        Value::Date(2026, 7, 1, 12, 0, 0, 123_456),
        b"\0\x01\xff".to_vec().into(),
        "it's ä 😀 ?".into(),
        "-1.50000".into(),
        Value::Time(true, 1, 2, 3, 4, 0),
    ];
    conn.exec_drop("INSERT INTO a VALUES (?, ?, ?, ?, ?, ?, ?)", row).await.unwrap();
    conn.exec_drop("INSERT INTO a (a) VALUES (:a)", params! { "a" => Value::NULL }).await.unwrap();
    let text: Vec<mysql_async::Row> = conn.query("SELECT * FROM a").await.unwrap();
    let binary: Vec<mysql_async::Row> = conn.exec("SELECT * FROM a WHERE 1 = ?", (1,)).await.unwrap();
    println!("{text:?}\n{binary:?}");
    conn.disconnect().await.unwrap();
}

async fn prepared(place: &Place) {
    let sessions =
        join_all((0..2 * place.connections).map(|_| async {
            Conn::new(options(place).stmt_cache_size(3)).await.expect("the login succeeds")
        }));
    let mut sessions = sessions.await;
    for round in 0..8_usize {
        let sums = sessions.iter_mut().enumerate().map(|(index, conn)| async move {
            let sql = format!("SELECT ? + {index} + {}", round % 5);
            let sum: Option<i64> = conn.exec_first(sql, (round,)).await.unwrap();
            assert_eq!(sum, i64::try_from(round + index + round % 5).ok());
        });
        join_all(sums).await;
    }
    for conn in sessions {
        conn.disconnect().await.unwrap();
    }
}

async fn batches(place: &Place) {
    let mut conn = connect(place).await;
    conn.query_drop("CREATE TABLE b (id INT AUTO_INCREMENT PRIMARY KEY, n INT)").await.unwrap();
    conn.exec_batch("INSERT INTO b (n) VALUES (:n)", (0..50).map(|n| params! { n })).await.unwrap();
    println!("{:?} {}", conn.last_insert_id(), conn.affected_rows());
    conn.query_drop("UPDATE b SET n = n + 1 WHERE id > 40").await.unwrap();
    println!("{}", conn.affected_rows());
    let sum: Option<i64> = conn.query_first("SELECT SUM(n) FROM b").await.unwrap();
    println!("{sum:?}");
    conn.disconnect().await.unwrap();
}

async fn several(place: &Place) {
    let mut conn = connect(place).await;
    conn.query_drop("CREATE PROCEDURE p(x INT) BEGIN SELECT x; SELECT x + 1, x + 2; END").await.unwrap();
    for sql in ["SELECT 1; SELECT 'two', 2; DO 0; SELECT 3", "CALL p(7)"] {
        let mut results = conn.query_iter(sql).await.unwrap();
        loop {
            let rows: Vec<mysql_async::Row> = results.collect().await.unwrap();
            println!("{rows:?}");
            if results.is_empty() {
                break;
            }
        }
        drop(results);
    }
    conn.disconnect().await.unwrap();
}

async fn transactions(place: &Place) {
    let mut conn = connect(place).await;
    conn.query_drop("CREATE TABLE t (n INT)").await.unwrap();
    for level in [
        IsolationLevel::ReadUncommitted,
        IsolationLevel::ReadCommitted,
        IsolationLevel::RepeatableRead,
        IsolationLevel::Serializable,
    ] {
        for ends_well in [true, false] {
            let mut options = TxOpts::default();
            options.with_isolation_level(level).with_consistent_snapshot(true);
            let mut transaction = conn.start_transaction(options).await.unwrap();
            transaction.query_drop("INSERT INTO t VALUES (1)").await.unwrap();
            if ends_well {
                transaction.commit().await.unwrap()
            } else {
                transaction.rollback().await.unwrap()
            }
        }
    }
    let mut read_only = TxOpts::default();
    read_only.with_readonly(Some(true));
    let mut transaction = conn.start_transaction(read_only).await.unwrap();
    println!("{}", number(transaction.query_drop("INSERT INTO t VALUES (2)").await));
    drop(transaction);
    let count: Option<i64> = conn.query_first("SELECT COUNT(*) FROM t").await.unwrap();
    println!("{count:?}");
    conn.disconnect().await.unwrap();
}

async fn errors(place: &Place) {
    let mut conn = connect(place).await;
    conn.query_drop("CREATE TABLE e (id INT PRIMARY KEY)").await.unwrap();
    conn.query_drop("INSERT INTO e VALUES (1)").await.unwrap();
    println!("{}", number(conn.query_drop("INSERT INTO e VALUES (1)").await));
    println!("{}", number(conn.exec_drop("INSERT INTO e VALUES (?)", (1,)).await));
    println!("{}", number(conn.exec_drop("SELECT * FROM no_such_table WHERE 1 = ?", (1,)).await));
    println!("{}", number(conn.query_drop("SELEC 1").await));
    let count: Option<i64> = conn.query_first("SELECT COUNT(*) FROM e").await.unwrap();
    println!("{count:?}");
    conn.disconnect().await.unwrap();
}

async fn large(place: &Place) {
    let mut conn = connect(place).await;
    let length: Option<i64> = conn.exec_first("SELECT LENGTH(?)", (vec![b'x'; 20_000_000],)).await.unwrap();
    println!("{length:?}");
    let mut rows = conn.query_iter("SELECT REPEAT('y', 10000) FROM seq_1_to_5000").await.unwrap();
    let stream = rows.stream::<String>().await.unwrap().expect("there are rows");
    let bytes = stream.try_fold(0, |sum, row| async move { Ok(sum + row.len()) }).await.unwrap();
    println!("{bytes}");
    drop(rows);
    conn.disconnect().await.unwrap();
}

async fn kill(place: &Place) {
    let (mut victim, mut killer, mut watcher) =
        (connect(place).await, connect(place).await, connect(place).await);
    let id = victim.id();
    let killed = victim.query_drop("SELECT COUNT(*), SLEEP(600) FROM seq_1_to_10 /* async-victim */");
    let asked = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%async-victim%' AND id <> CONNECTION_ID()";
    let kill = async {
        loop {
            let running: Option<i64> = watcher.query_first(asked).await.unwrap();
            if running == Some(1) {
                break;
            }
            tokio::time::sleep(crate::POLL_INTERVAL).await;
        }
        killer.query_drop(format!("KILL QUERY {id}")).await.unwrap();
    };
    let (killed, ()) = tokio::join!(killed, kill);
    println!("{}", number(killed));
    let one: Option<i64> = victim.query_first("SELECT 1").await.unwrap();
    println!("{one:?}");
    for conn in [victim, killer, watcher] {
        conn.disconnect().await.unwrap();
    }
}

async fn many(place: &Place) {
    let pool = Pool::new(Opts::from(options(place)));
    let mut conn = pool.get_conn().await.unwrap();
    conn.query_drop("CREATE TABLE counted (id INT PRIMARY KEY, n INT); INSERT INTO counted VALUES (1, 0)")
        .await
        .unwrap();
    drop(conn);
    let clients = futures_util::stream::iter(0..8 * place.connections).map(|_| async {
        for _ in 0..5 {
            let mut transaction = pool.start_transaction(TxOpts::default()).await.unwrap();
            transaction.exec_drop("UPDATE counted SET n = n + ? WHERE id = 1", (1,)).await.unwrap();
            transaction.commit().await.unwrap();
        }
    });
    clients.buffer_unordered(8 * place.connections).collect::<Vec<_>>().await;
    let pool_of_condition = &pool;
    until(|| async move {
        let mut conn = pool_of_condition.get_conn().await.unwrap();
        conn.query_first::<i64, _>("SELECT n FROM counted").await.unwrap().is_some_and(|n| n % 40 == 0)
    })
    .await;
    let mut conn = pool.get_conn().await.unwrap();
    let counted: Option<i64> = conn.query_first("SELECT n FROM counted").await.unwrap();
    println!("{counted:?}");
    drop(conn);
    pool.disconnect().await.unwrap();
}
