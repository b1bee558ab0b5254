// COPY by pg-copy-streams, large results and large parameters.
"use strict";

const assert = require("node:assert/strict");
const { Readable } = require("node:stream");
const { pipeline } = require("node:stream/promises");
const { from, to } = require("pg-copy-streams");
const { CONNECTIONS, check, connect, fails, flatMemory, scalar } = require("./harness.cjs");

const ROWS = 100_000;

function* lines(count, text) {
  for (let row = 0; row < count; row++) yield `${row}\t${text(row)}\n`;
}

check("COPY in and out", async () => {
  const client = await connect();
  await client.query("DROP TABLE IF EXISTS copied_js; CREATE TABLE copied_js (id int, name text)");
  const into = client.query(from("COPY copied_js FROM STDIN"));
  await pipeline(Readable.from(lines(ROWS, (row) => `name ${row}`)), into);
  assert.equal(into.rowCount, ROWS);
  let received = 0;
  for await (const piece of client.query(to("COPY copied_js TO STDOUT"))) {
    received += piece.filter((byte) => byte === 10).length;
  }
  assert.equal(received, ROWS);
  assert.equal(await scalar(client, "SELECT sum(id)::float8 FROM copied_js"), (ROWS * (ROWS - 1)) / 2);
  await client.query("DROP TABLE copied_js");
});

check("a COPY that goes wrong, by the server or by the client, and the session lives on", async () => {
  const client = await connect();
  await client.query("DROP TABLE IF EXISTS miscopied_js; CREATE TABLE miscopied_js (id int CHECK (id <> 7), name text)");
  for (let round = 0; round < CONNECTIONS; round++) {
    const wrong = client.query(from("COPY miscopied_js FROM STDIN"));
    await fails(pipeline(Readable.from(lines(ROWS, () => "x")), wrong), "23514");
    assert.equal(await scalar(client, "SELECT count(*)::int FROM miscopied_js"), 0);
    const broken = (function* () {
      yield* lines(5, () => "x");
      throw new Error("given up");
    })();
    await assert.rejects(pipeline(Readable.from(broken), client.query(from("COPY miscopied_js FROM STDIN"))), /given up/);
    assert.equal(await scalar(client, "SELECT count(*)::int FROM miscopied_js"), 0);
  }
  await client.query("DROP TABLE miscopied_js");
});

check("100 MB stream through flat memory", async () => {
  const client = await connect();
  const assertFlat = flatMemory();
  let received = 0;
  const out = client.query(to("COPY (SELECT repeat('x', 9999) FROM generate_series(1, 10500)) TO STDOUT"));
  for await (const piece of out) {
    received += piece.length;
    assertFlat();
  }
  assert.equal(received, 105_000_000);
});

check("a parameter of 10 MB", async () => {
  const client = await connect();
  const text = "0123456789".repeat(1_000_000);
  for (const name of [undefined, "long"]) {
    const { rows } = await client.query({ name, text: "SELECT length($1::text) AS n, $1::text AS t", values: [text] });
    assert.equal(rows[0].n, text.length);
    assert.equal(rows[0].t, text);
  }
});
