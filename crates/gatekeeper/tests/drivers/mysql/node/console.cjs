// The console through mysql2; the environment is as in main.cjs, the database is the console.
"use strict";

const assert = require("node:assert/strict");
const mysql = require("mysql2/promise");
const server = require("./settings.cjs");
const { check, fails, main } = require("../../node-postgres/harness.cjs");

const SETTINGS = { ...server.SETTINGS, database: "gatekeeper" };

check("lists in text and in binary are equal", async () => {
  const session = await mysql.createConnection({ ...SETTINGS, multipleStatements: true });
  const [text] = await session.query("SHOW CONFIG");
  for (let round = 0; round < 3; round++) {
    assert.deepEqual((await session.execute("SHOW CONFIG"))[0], text);
  }
  assert.deepEqual((await session.execute("SHOW LISTS"))[0], (await session.query("SHOW LISTS"))[0]);
  const [[names]] = await session.execute("SELECT DATABASE() AS name, @@max_allowed_packet");
  assert.deepEqual(names, { name: "gatekeeper", "@@max_allowed_packet": 16777216 });
  assert.equal((await session.query("SET NAMES utf8mb4; SHOW STATE"))[0].length, 2);
  await session.ping();
  await session.end();
});

check("commands act, prepared or not, and take no parameters", async () => {
  const session = await mysql.createConnection(SETTINGS);
  await session.execute("PAUSE");
  await fails(session.execute("PAUSE"), "ER_UNKNOWN_ERROR");
  await session.query("RESUME");
  await fails(session.execute("KILL ?", [17]), "ER_PARSE_ERROR");
  await fails(session.execute("SELECT 1"), "ER_PARSE_ERROR");
  await fails(session.execute("SELECT @@no_such_variable"), "ER_UNKNOWN_SYSTEM_VARIABLE");
  session.destroy();
});

main();
