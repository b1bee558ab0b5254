// Logging in, statements in every form, cursors, cancels, sessions that are shared.
"use strict";

const assert = require("node:assert/strict");
const { Client, Pool } = require("pg");
const Cursor = require("pg-cursor");
const { CONNECTIONS, SETTINGS, THROUGH_GATE, check, connect, fails, running, scalar, until, upstream } = require("./harness.cjs");

check("a right password is let in by SCRAM, a wrong one is refused", async () => {
  const client = await connect();
  assert.equal(await scalar(client, "SELECT current_user::text"), process.env.PGUSER);
  await fails(connect({ password: "not the password" }), "28P01");
  await fails(connect({ user: "nobody_of_that_name" }), "28P01");
  await fails(connect({ database: "no_such_database" }), "3D000");
});

check("start-up parameters hold for their session and for no other", async () => {
  const named = await connect({ application_name: "named", statement_timeout: 12345, options: "-c work_mem=5MB" });
  const plain = await connect();
  for (let round = 0; round < 2 * CONNECTIONS; round++) {
    assert.equal(await scalar(named, "SHOW application_name"), "named");
    assert.equal(await scalar(named, "SHOW statement_timeout"), "12345ms");
    assert.equal(await scalar(named, "SHOW work_mem"), "5MB");
    assert.equal(await scalar(plain, "SHOW statement_timeout"), "0");
  }
});

check("many sessions share few server connections", async () => {
  const sessions = await Promise.all(Array.from({ length: 3 * CONNECTIONS }, () => connect()));
  const pids = new Set();
  for (const session of sessions) pids.add(await scalar(session, "SELECT pg_backend_pid()"));
  assert.ok(pids.size <= (THROUGH_GATE ? CONNECTIONS : sessions.length), `${pids.size} server connections`);
});

check("simple, extended and named statements over many sessions", async () => {
  const sessions = await Promise.all(Array.from({ length: 3 * CONNECTIONS }, () => connect()));
  for (let round = 0; round < 4; round++) {
    await Promise.all(
      sessions.map(async (session, index) => {
        assert.equal(await scalar(session, `SELECT ${index}`), index);
        assert.equal(await scalar(session, "SELECT $1::int + 1", [index]), index + 1);
        // The same name for another text in each session.
        const named = { name: "mine", text: `SELECT $1::int * ${index} AS product`, values: [round] };
        assert.equal((await session.query(named)).rows[0].product, round * index);
      }),
    );
  }
});

check("values of many types come back as they went", async () => {
  const client = await connect();
  const values = [true, 42, "it's", null, new Date(1_700_000_000_000), Buffer.from([0, 1, 255]), ["a", "b"], { a: [1] }];
  const types = ["bool", "int4", "text", "text", "timestamptz", "bytea", "text[]", "jsonb"];
  for (let index = 0; index < values.length; index++) {
    assert.deepEqual(await scalar(client, `SELECT $1::${types[index]}`, [values[index]]), values[index]);
  }
});

check("queries that are not awaited are answered in order", async () => {
  const client = await connect();
  const answers = Array.from({ length: 300 }, (_, number) => scalar(client, "SELECT $1::int", [number]));
  assert.deepEqual(await Promise.all(answers), Array.from({ length: 300 }, (_, number) => number));
});

check("several statements in one text give several results, and one error undoes them", async () => {
  const client = await connect();
  await client.query("DROP TABLE IF EXISTS jsons; CREATE TABLE jsons (a int)");
  const results = await client.query("INSERT INTO jsons VALUES (1); SELECT a FROM jsons; SELECT 2 AS b");
  assert.deepEqual(results.map((result) => result.command), ["INSERT", "SELECT", "SELECT"]);
  await fails(client.query("INSERT INTO jsons VALUES (2); SELECT 1/0"), "22012");
  assert.equal(await scalar(client, "SELECT count(*)::int FROM jsons"), 1);
  await client.query("DROP TABLE jsons");
});

check("an error leaves its session usable", async () => {
  const client = await connect();
  for (let round = 0; round < 2 * CONNECTIONS; round++) {
    await fails(client.query("SELECT no_such_column"), "42703");
    await fails(client.query("SELECT 1 / $1::int", [0]), "22012");
    await fails(client.query({ name: "broken", text: "SELECT 1 / $1::int", values: [0] }), "22012");
    await fails(client.query({ name: `worse ${round}`, text: "SELEC 1" }), "42601");
    assert.equal(await scalar(client, "SELECT $1::int", [round]), round);
  }
  const violated = await fails(client.query("DO $$ BEGIN RAISE 'mine' USING ERRCODE = 'GK001', DETAIL = 'why', HINT = 'so'; END $$"), "GK001");
  assert.deepEqual([violated.severity, violated.detail, violated.hint], ["ERROR", "why", "so"]);
});

check("an empty query is answered", async () => {
  const client = await connect();
  assert.deepEqual((await client.query("")).rows, []);
  assert.deepEqual((await client.query({ text: "", values: [] })).rows, []);
  assert.equal(await scalar(client, "SELECT 1"), 1);
});

check("a cursor reads in pieces, to the end or not", async () => {
  for (const inTransaction of [false, true]) {
    const client = await connect();
    if (inTransaction) await client.query("BEGIN");
    const cursor = client.query(new Cursor("SELECT n FROM generate_series(1, $1::int) n", [1000]));
    assert.equal((await cursor.read(10)).length, 10);
    const rest = await cursor.read(5000);
    assert.equal(rest.at(-1).n, 1000);
    assert.equal((await cursor.read(10)).length, 0);
    const left = client.query(new Cursor("SELECT n FROM generate_series(1, $1::int) n", [1000]));
    assert.equal((await left.read(3)).length, 3);
    await left.close();
    assert.equal(await scalar(client, "SELECT 1"), 1);
    if (inTransaction) await client.query("COMMIT");
  }
});

check("a cursor whose query fails half-way tells so", async () => {
  const client = await connect();
  const cursor = client.query(new Cursor("SELECT 1 / (50 - n) FROM generate_series(1, 100) n", []));
  assert.equal((await cursor.read(10)).length, 10);
  await fails(cursor.read(100), "22012");
  assert.equal(await scalar(client, "SELECT 1"), 1);
});

check("a running statement is cancelled, and its session lives on", async () => {
  const watcher = await upstream();
  for (let round = 0; round < 3; round++) {
    const client = await connect();
    const ended = fails(client.query(`/* js-cancel-${round} */ SELECT pg_sleep(600)`), "57014");
    await until("the statement runs", async () => (await running(watcher, `js-cancel-${round}`)) === 1);
    // What node-postgres has for it: another client that asks for the first one's end.
    const { host, port, processID, secretKey } = client;
    const { connection, ssl } = new Client({ host, port });
    const cancel = () => connection.cancel(processID, secretKey);
    connection.on("connect", () => (ssl ? connection.requestSsl() : cancel()));
    connection.on("sslconnect", cancel);
    connection.on("error", () => {});
    connection.connect(port, host);
    await ended;
    assert.equal(await scalar(client, "SELECT 1"), 1);
  }
});

check("statement_timeout ends a statement, not its session", async () => {
  const client = await connect({ statement_timeout: 50 });
  for (let round = 0; round < CONNECTIONS; round++) {
    await fails(client.query("SELECT pg_sleep(600)"), "57014");
    assert.equal(await scalar(client, "SELECT 1"), 1);
  }
});

check("LISTEN receives what others NOTIFY", async () => {
  const [mine, other] = [await connect(), await connect()];
  const received = [];
  mine.on("notification", ({ payload }) => received.push(payload));
  await mine.query("LISTEN javascript");
  for (let number = 0; number < 5; number++) {
    await other.query("SELECT pg_notify('javascript', $1)", [String(number)]);
  }
  await until("they arrive", () => received.length === 5);
  assert.deepEqual(received, ["0", "1", "2", "3", "4"]);
  await mine.query("UNLISTEN *");
});

check("settings stay with their session", async () => {
  const zones = ["UTC", "Asia/Tokyo", "Europe/Berlin"];
  const sessions = await Promise.all(Array.from({ length: 3 * CONNECTIONS }, () => connect()));
  await Promise.all(sessions.map((session, index) => session.query(`SET TIME ZONE '${zones[index % 3]}'`)));
  for (let round = 0; round < 3; round++) {
    const shown = await Promise.all(sessions.map((session) => scalar(session, "SHOW timezone")));
    assert.deepEqual(shown, sessions.map((_, index) => zones[index % 3]));
  }
});

check("a pool of many clients keeps the sum", async () => {
  const pool = new Pool({ ...SETTINGS, max: 8 * CONNECTIONS });
  await pool.query("DROP TABLE IF EXISTS pooled; CREATE TABLE pooled (id int PRIMARY KEY, n int)");
  await pool.query("INSERT INTO pooled SELECT id, 0 FROM generate_series(0, 9) id");
  const steps = Array.from({ length: 400 }, async (_, step) => {
    const client = await pool.connect();
    try {
      await client.query("BEGIN");
      await client.query({ name: "add", text: "UPDATE pooled SET n = n + 1 WHERE id = $1", values: [step % 10] });
      await client.query(step % 4 === 0 ? "ROLLBACK" : "COMMIT");
    } finally {
      client.release();
    }
  });
  await Promise.all(steps);
  assert.equal((await pool.query("SELECT sum(n)::int AS sum FROM pooled")).rows[0].sum, 300);
  await pool.query("DROP TABLE pooled");
  await pool.end();
});
