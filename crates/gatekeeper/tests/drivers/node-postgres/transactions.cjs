// Transactions: isolation, savepoints, failed ones, what others see.
"use strict";

const assert = require("node:assert/strict");
const { CONNECTIONS, check, connect, fails, scalar, upstream, until } = require("./harness.cjs");

check("transactions with every isolation level and access mode", async () => {
  const client = await connect();
  for (const level of ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]) {
    for (const [access, shown] of [["READ ONLY", "on"], ["READ WRITE", "off"]]) {
      await client.query(`BEGIN ISOLATION LEVEL ${level} ${access}`);
      assert.equal(await scalar(client, "SHOW transaction_isolation"), level.toLowerCase());
      assert.equal(await scalar(client, "SHOW transaction_read_only"), shown);
      await client.query("COMMIT");
    }
  }
  await client.query("BEGIN");
  await client.query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE READ ONLY");
  assert.equal(await scalar(client, "SHOW transaction_isolation"), "serializable");
  await fails(client.query("CREATE TABLE refused (a int)"), "25006");
  await client.query("ROLLBACK");
  assert.equal(await scalar(client, "SHOW transaction_isolation"), "read committed");
});

check("a serialization failure is told to the one that it meets", async () => {
  const [one, other] = [await connect(), await connect()];
  await one.query("DROP TABLE IF EXISTS serial_js; CREATE TABLE serial_js (a int)");
  await one.query("INSERT INTO serial_js VALUES (0)");
  for (const client of [one, other]) {
    await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
    await client.query("SELECT a FROM serial_js");
  }
  await one.query("UPDATE serial_js SET a = 1");
  await one.query("COMMIT");
  await fails(other.query("UPDATE serial_js SET a = 2"), "40001");
  await other.query("ROLLBACK");
  await one.query("DROP TABLE serial_js");
});

check("savepoints undo a part", async () => {
  const client = await connect();
  await client.query("DROP TABLE IF EXISTS saved; CREATE TABLE saved (a int)");
  await client.query("BEGIN");
  await client.query("SAVEPOINT first");
  await client.query("INSERT INTO saved VALUES (1)");
  await client.query("ROLLBACK TO SAVEPOINT first");
  await client.query("INSERT INTO saved VALUES (2)");
  await client.query("SAVEPOINT second");
  await fails(client.query("SELECT 1 / $1::int", [0]), "22012");
  await fails(client.query("SELECT 1"), "25P02");
  await client.query("ROLLBACK TO SAVEPOINT second");
  await client.query("INSERT INTO saved VALUES ($1)", [4]);
  await client.query("RELEASE SAVEPOINT second");
  await client.query("COMMIT");
  assert.equal(await scalar(client, "SELECT sum(a)::int FROM saved"), 6);
  await client.query("DROP TABLE saved");
});

check("a failed transaction stays failed until it ends", async () => {
  const client = await connect();
  for (let round = 0; round < CONNECTIONS; round++) {
    await client.query("BEGIN");
    await fails(client.query("SELECT 1/0"), "22012");
    await fails(client.query("SELECT $1::int", [1]), "25P02");
    assert.equal((await client.query("COMMIT")).command, "ROLLBACK");
    assert.equal(await scalar(client, "SELECT 1"), 1);
  }
});

check("an empty transaction is answered", async () => {
  const client = await connect();
  assert.equal((await client.query("BEGIN")).command, "BEGIN");
  assert.equal((await client.query("COMMIT")).command, "COMMIT");
  // By the extended protocol too.
  assert.equal((await client.query({ text: "BEGIN", values: [] })).command, "BEGIN");
  assert.equal(await scalar(client, "SELECT $1::int", [1]), 1);
  assert.equal((await client.query({ name: "end", text: "ROLLBACK" })).command, "ROLLBACK");
});

check("closing in the middle of a transaction rolls it back", async () => {
  const client = await connect();
  await client.query("DROP TABLE IF EXISTS closed_js; CREATE TABLE closed_js (a int)");
  for (let round = 0; round < 2 * CONNECTIONS; round++) {
    const leaving = await connect();
    await leaving.query("BEGIN");
    await leaving.query("INSERT INTO closed_js VALUES (1)");
    if (round % 2 === 0) await leaving.end();
    else leaving.connection.stream.destroy();
  }
  await client.query("BEGIN");
  await client.query("LOCK TABLE closed_js IN ACCESS EXCLUSIVE MODE");
  assert.equal(await scalar(client, "SELECT count(*)::int FROM closed_js"), 0);
  await client.query("COMMIT");
  await client.query("DROP TABLE closed_js");
});

check("a server connection that is killed ends only its own session", async () => {
  const [watcher, victim, other] = [await upstream(), await connect(), await connect()];
  await victim.query("BEGIN");
  const pid = await scalar(victim, "SELECT pg_backend_pid()");
  await watcher.query("SELECT pg_terminate_backend($1)", [pid]);
  await until("it is gone", async () => (await watcher.query("SELECT 1 FROM pg_stat_activity WHERE pid = $1", [pid])).rowCount === 0);
  await assert.rejects(victim.query("SELECT 1"));
  assert.equal(await scalar(other, "SELECT 1"), 1);
});
