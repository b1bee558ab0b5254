//! sqlx: pools, statements that it prepares by itself, transactions and savepoints, streams.

use futures_util::TryStreamExt as _;
use futures_util::future::join_all;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlPoolOptions, MySqlRow, MySqlSslMode};
use sqlx::{Connection as _, Executor as _, Row as _, TypeInfo as _, ValueRef as _};

use crate::{Place, check};

fn options(place: &Place) -> MySqlConnectOptions {
    let options = MySqlConnectOptions::new()
        .host(&place.host)
        .port(place.port)
        .username(&place.user)
        .password(&place.password)
        .database(&place.database);
    match &place.authority {
        Some(file) => options.ssl_mode(MySqlSslMode::VerifyIdentity).ssl_ca(file),
        None => options.ssl_mode(MySqlSslMode::Disabled),
    }
}

async fn connect(place: &Place) -> MySqlConnection {
    MySqlConnection::connect_with(&options(place)).await.expect("the login succeeds")
}

/// The number of the server's error.
fn number<T>(answer: Result<T, sqlx::Error>) -> u16 {
    match answer {
        Err(sqlx::Error::Database(error)) => error.downcast::<sqlx::mysql::MySqlDatabaseError>().number(),
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("an error was due"),
    }
}

/// A row's types and bytes.
fn shown(row: &MySqlRow) -> String {
    let shown = row.columns_shown();
    shown.join(" ")
}

trait Shown {
    fn columns_shown(&self) -> Vec<String>;
}

impl Shown for MySqlRow {
    fn columns_shown(&self) -> Vec<String> {
        (0..self.len())
            .map(|index| {
                let value = self.try_get_raw(index).expect("there is a column");
                let kind = value.type_info().name().to_owned();
                if value.is_null() {
                    return format!("{kind} NULL");
                }
                let bytes = self.try_get_unchecked::<Vec<u8>, _>(index).expect("it has bytes");
                format!("{kind} {}", bytes.escape_ascii())
            })
            .collect()
    }
}

pub async fn run(place: &Place) {
    check("a right password is let in, a wrong one and an unknown database are refused", login(place)).await;
    check("values come back as they went, in text and in binary", values(place)).await;
    check("prepared statements of many sessions, more than the driver keeps", prepared(place)).await;
    check("several results, and a procedure", several(place)).await;
    check("transactions, savepoints, and what is dropped without an end", transactions(place)).await;
    check("an error leaves its session usable", errors(place)).await;
    check("a parameter of 20 MB, and rows that stream", large(place)).await;
    check("a pool of many clients over few server connections", many(place)).await;
}

async fn login(place: &Place) {
    let mut conn = connect(place).await;
    let who: (String, String, String, String) =
        sqlx::query_as("SELECT CURRENT_USER(), DATABASE(), @@time_zone, @@sql_mode")
            .fetch_one(&mut conn)
            .await
            .unwrap();
    println!("{who:?}");
    conn.ping().await.unwrap();
    conn.close().await.unwrap();
    println!("{}", number(MySqlConnection::connect_with(&options(place).password("wrong")).await));
    println!("{}", number(MySqlConnection::connect_with(&options(place).database("no_such_database")).await));
}

async fn values(place: &Place) {
    let mut conn = connect(place).await;
    let create = "CREATE TABLE a (a BIGINT UNSIGNED, b DOUBLE, c DATETIME(6), d BLOB, e TEXT, f DECIMAL(20,5), g TIME)";
    conn.execute(create).await.unwrap();
    sqlx::query("INSERT INTO a VALUES (?, ?, ?, ?, ?, ?, ?), (NULL, NULL, NULL, NULL, NULL, NULL, NULL)")
        .bind(u64::MAX)
        .bind(-1.5)
        .bind("2026-07-01 12:00:00.123456")
        .bind(&b"\0\x01\xff"[..])
        .bind("it's ä 😀 ?")
        .bind("-1.50000")
        .bind("-26:03:04")
        .execute(&mut conn)
        .await
        .unwrap();
    for row in conn.fetch_all("SELECT * FROM a").await.unwrap() {
        println!("{}", shown(&row));
    }
    for row in sqlx::query("SELECT * FROM a WHERE 1 = ?").bind(1).fetch_all(&mut conn).await.unwrap() {
        println!("{}", shown(&row));
    }
    conn.close().await.unwrap();
}

async fn prepared(place: &Place) {
    let options = options(place).statement_cache_capacity(3);
    let sessions = (0..2 * place.connections).map(|_| MySqlConnection::connect_with(&options));
    let mut sessions: Vec<_> = join_all(sessions).await.into_iter().map(Result::unwrap).collect();
    for round in 0..8_usize {
        let sums = sessions.iter_mut().enumerate().map(|(index, conn)| async move {
            let sql = format!("SELECT CAST(? + {index} + {} AS SIGNED)", round % 5);
            let sum: i64 = sqlx::query_scalar(&sql).bind(round as i64).fetch_one(conn).await.unwrap();
            assert_eq!(sum as usize, round + index + round % 5);
        });
        join_all(sums).await;
    }
    for conn in sessions {
        conn.close().await.unwrap();
    }
}

async fn several(place: &Place) {
    let mut conn = connect(place).await;
    conn.execute("CREATE PROCEDURE p(x INT) BEGIN SELECT x; SELECT x + 1, x + 2; END").await.unwrap();
    for sql in ["SELECT 1; SELECT 'two', 2; DO 0; SELECT 3", "CALL p(7)"] {
        let mut results = conn.fetch_many(sql);
        while let Some(part) = results.try_next().await.unwrap() {
            match part {
                sqlx::Either::Left(done) => println!("{done:?}"),
                sqlx::Either::Right(row) => println!("{}", shown(&row)),
            }
        }
    }
    conn.close().await.unwrap();
}

async fn transactions(place: &Place) {
    let mut conn = connect(place).await;
    conn.execute("CREATE TABLE t (n INT)").await.unwrap();
    let mut outer = conn.begin().await.unwrap();
    outer.execute("INSERT INTO t VALUES (1)").await.unwrap();
    let mut inner = outer.begin().await.unwrap();
    inner.execute("INSERT INTO t VALUES (2)").await.unwrap();
    inner.rollback().await.unwrap();
    let mut inner = outer.begin().await.unwrap();
    inner.execute("INSERT INTO t VALUES (3)").await.unwrap();
    inner.commit().await.unwrap();
    outer.commit().await.unwrap();
    let mut dropped = conn.begin().await.unwrap();
    dropped.execute("INSERT INTO t VALUES (4)").await.unwrap();
    drop(dropped);
    let rows: Vec<i32> = sqlx::query_scalar("SELECT n FROM t ORDER BY n").fetch_all(&mut conn).await.unwrap();
    println!("{rows:?}");
    conn.close().await.unwrap();
}

async fn errors(place: &Place) {
    let mut conn = connect(place).await;
    conn.execute("CREATE TABLE e (id INT PRIMARY KEY)").await.unwrap();
    conn.execute("INSERT INTO e VALUES (1)").await.unwrap();
    println!("{}", number(conn.execute("INSERT INTO e VALUES (1)").await));
    println!("{}", number(sqlx::query("INSERT INTO e VALUES (?)").bind(1).execute(&mut conn).await));
    println!(
        "{}",
        number(sqlx::query("SELECT * FROM no_such_table WHERE 1 = ?").bind(1).execute(&mut conn).await)
    );
    println!("{}", number(conn.execute("SELEC 1").await));
    let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM e").fetch_one(&mut conn).await.unwrap();
    println!("{count}");
    conn.close().await.unwrap();
}

async fn large(place: &Place) {
    let mut conn = connect(place).await;
    let parameter = "x".repeat(20_000_000);
    let length: i64 =
        sqlx::query_scalar("SELECT LENGTH(?)").bind(parameter).fetch_one(&mut conn).await.unwrap();
    println!("{length}");
    let mut bytes = 0;
    let mut rows =
        sqlx::query_scalar::<_, String>("SELECT REPEAT('y', 10000) FROM seq_1_to_5000").fetch(&mut conn);
    while let Some(row) = rows.try_next().await.unwrap() {
        bytes += row.len();
    }
    println!("{bytes}");
}

async fn many(place: &Place) {
    let clients = 8 * place.connections;
    let size = u32::try_from(2 * place.connections).expect("there are few");
    let pool = MySqlPoolOptions::new().max_connections(size).connect_with(options(place)).await.unwrap();
    pool.execute("CREATE TABLE counted (id INT PRIMARY KEY, n INT)").await.unwrap();
    pool.execute("INSERT INTO counted VALUES (1, 0)").await.unwrap();
    let works = (0..clients).map(|_| async {
        for _ in 0..5 {
            let mut transaction = pool.begin().await.unwrap();
            sqlx::query("UPDATE counted SET n = n + ? WHERE id = 1")
                .bind(1)
                .execute(&mut *transaction)
                .await
                .unwrap();
            transaction.commit().await.unwrap();
        }
    });
    join_all(works).await;
    let counted: i32 = sqlx::query_scalar("SELECT n FROM counted").fetch_one(&pool).await.unwrap();
    println!("{counted}");
    pool.close().await;
}
