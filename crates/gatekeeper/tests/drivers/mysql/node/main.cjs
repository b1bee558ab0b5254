// mysql2 through the gatekeeper: `NODE_PATH=… node main.cjs`, environment as in ../python/__main__.py.
"use strict";

const assert = require("node:assert/strict");
const mysql = require("mysql2/promise");
const { SETTINGS } = require("./settings.cjs");
const { CONNECTIONS, check, fails, main, until } = require("../../node-postgres/harness.cjs");

async function withSession(options, work) {
  const session = await mysql.createConnection({ ...SETTINGS, ...options });
  try {
    return await work(session);
  } finally {
    session.destroy();
  }
}

async function rows(session, text, values) {
  return (await session.query(text, values))[0];
}

check("a right password is let in, a wrong one and an unknown database are refused", async () => {
  await withSession({}, async (session) => console.log(await rows(session, "SELECT CURRENT_USER(), DATABASE()")));
  await fails(mysql.createConnection({ ...SETTINGS, password: "wrong" }), "ER_ACCESS_DENIED_ERROR");
  await fails(mysql.createConnection({ ...SETTINGS, database: "no_such_database" }), "ER_BAD_DB_ERROR");
});

check("values of many types, in text and in binary", async () => {
  await withSession({ supportBigNumbers: true, bigNumberStrings: true, timezone: "Z" }, async (session) => {
    await session.query("CREATE TABLE every_type (a BIGINT UNSIGNED, b DOUBLE, c DATETIME(3), d BLOB, e TEXT, f DECIMAL(20,5), g JSON)");
    const values = ["18446744073709551615", -1.5, new Date(1_700_000_000_123), Buffer.from([0, 1, 255]), "it's ä 😀 ?", "-1.50000", null];
    await session.execute("INSERT INTO every_type VALUES (?, ?, ?, ?, ?, ?, ?)", values);
    await session.query("INSERT INTO every_type VALUES (?)", [values]);
    const [text] = await session.query("SELECT * FROM every_type");
    const [binary] = await session.execute("SELECT * FROM every_type WHERE 1 = ?", [1]);
    assert.deepEqual(text, binary);
    console.log(text);
  });
});

check("prepared statements of many sessions, more than the driver keeps", async () => {
  const sessions = await Promise.all(
    Array.from({ length: 2 * CONNECTIONS }, () => mysql.createConnection({ ...SETTINGS, maxPreparedStatements: 3 })),
  );
  for (let round = 0; round < 8; round++) {
    await Promise.all(
      sessions.map(async (session, index) => {
        const [[row]] = await session.execute(`SELECT ? + ${index} + ${round % 5} AS sum`, [round]);
        assert.equal(Number(row.sum), round + index + (round % 5));
      }),
    );
  }
  sessions.forEach((session) => session.destroy());
});

check("statements that are not awaited are answered in order", async () => {
  await withSession({}, async (session) => {
    await session.query("CREATE TABLE in_order (id INT AUTO_INCREMENT PRIMARY KEY, a INT)");
    const sent = Array.from({ length: 50 }, (_, index) =>
      index % 2 ? session.query("INSERT INTO in_order (a) VALUES (?)", [index]) : session.execute("SELECT ? AS a", [index]),
    );
    const got = await Promise.all(sent);
    console.log(got.map(([result], index) => (index % 2 ? result.insertId : Number(result[0].a))).join(" "));
  });
});

check("several statements and a procedure's results", async () => {
  await withSession({ multipleStatements: true }, async (session) => {
    console.log(await rows(session, "SELECT 1 AS a; SELECT 2 AS b, 3 AS c; SET @x = 1; SELECT @x"));
    await session.query("CREATE PROCEDURE parts(a INT) BEGIN SELECT a; SELECT a * 2, 'x'; END");
    console.log((await rows(session, "CALL parts(4)")).slice(0, 2), (await session.execute("CALL parts(?)", [5]))[0].slice(0, 2));
    await fails(session.query("SELECT 1; SELECT no_such_column"), "ER_BAD_FIELD_ERROR");
    console.log(await rows(session, "SELECT 7 AS a"));
  });
});

check("transactions of a pool", async () => {
  const pool = mysql.createPool({ ...SETTINGS, connectionLimit: 4 * CONNECTIONS });
  await pool.query("CREATE TABLE pooled (id INT PRIMARY KEY, n INT)");
  await pool.query("INSERT INTO pooled VALUES (1, 0)");
  await Promise.all(
    Array.from({ length: 6 * CONNECTIONS }, async (_, index) => {
      const session = await pool.getConnection();
      await session.beginTransaction();
      await session.execute("UPDATE pooled SET n = n + ? WHERE id = 1", [1]);
      await (index % 3 ? session.commit() : session.rollback());
      session.release();
    }),
  );
  console.log((await pool.query("SELECT n FROM pooled"))[0]);
  await pool.end();
});

check("an error leaves its session usable", async () => {
  await withSession({}, async (session) => {
    await session.query("CREATE TABLE unique_ones (a INT PRIMARY KEY)");
    for (let round = 0; round < CONNECTIONS; round++) {
      await session.execute("INSERT INTO unique_ones VALUES (?)", [round]);
      await fails(session.execute("INSERT INTO unique_ones VALUES (?)", [round]), "ER_DUP_ENTRY");
      await fails(session.execute("SELECT * FROM no_such_table WHERE a = ?", [1]), "ER_NO_SUCH_TABLE");
    }
    console.log(await rows(session, "SELECT COUNT(*) AS n FROM unique_ones"));
  });
});

check("rows are streamed, and a parameter of 20 MB passes", async () => {
  await withSession({}, async (session) => {
    let count = 0;
    for await (const row of session.connection.query("SELECT seq, REPEAT('x', 10000) AS t FROM seq_1_to_3000").stream()) {
      count += row.t.length === 10_000;
    }
    console.log(count, (await session.execute("SELECT LENGTH(?) AS n", ["y".repeat(20_000_000)]))[0]);
  });
});

check("a session is given to its user again, and forgets what it had", async () => {
  await withSession({}, async (session) => {
    await session.query("SET @a = 1, time_zone = '+05:00'");
    await session.changeUser({ user: SETTINGS.user, password: SETTINGS.password, database: SETTINGS.database });
    console.log(await rows(session, "SELECT @a, @@time_zone, DATABASE()"));
    await session.query("SET @a = 1");
    await session.reset();
    console.log(await rows(session, "SELECT @a"));
  });
});

check("a running statement is killed by the id of its login", async () => {
  const watching = { host: "127.0.0.1", port: Number(process.env.UPSTREAM_PORT), ssl: undefined };
  await withSession(watching, (watcher) =>
    withSession({}, (victim) =>
      withSession({}, async (killer) => {
        const asked = "SELECT id FROM information_schema.processlist WHERE info LIKE '%node-victim%' AND id <> CONNECTION_ID()";
        const ended = fails(victim.query("SELECT COUNT(*), SLEEP(600) FROM seq_1_to_10 /* node-victim */"), "ER_QUERY_INTERRUPTED");
        await until("the statement runs", async () => (await rows(watcher, asked)).length > 0);
        await killer.query("KILL QUERY ?", [victim.threadId]);
        await ended;
        console.log(await rows(victim, "SELECT 1"));
      }),
    ),
  );
});

main();
