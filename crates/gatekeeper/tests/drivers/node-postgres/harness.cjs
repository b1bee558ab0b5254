// The runner of node-postgres's checks.
//
// Where to connect comes from libpq's variables (PGHOST, PGPORT, PGUSER, PGPASSWORD, PGDATABASE; with TLS PGSSLMODE,
// PGCHANNELBINDING and Node's own NODE_EXTRA_CA_CERTS). Beside them, from tests/drivers.rs: GATEKEEPER_PID (absent when
// the checks run against PostgreSQL itself), GATEKEEPER_CONNECTIONS, UPSTREAM_PORT. A check prints one line; the first
// that fails ends the run, unless CHECK_ALL is set. CHECK_ONLY selects by a part of the title. Nothing waits for a time
// to pass: `until` polls a condition within a bound.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const { Client } = require("pg");

// Milliseconds. A bound that only a hang reaches: the slowest check takes a few seconds.
const CHECK_TIMEOUT = 120_000;
const POLL_INTERVAL = 10;
// What the gatekeeper may grow by while 100 MB stream through it.
const RSS_GROWTH_MAX = 30 << 20;

const CONNECTIONS = Number(process.env.GATEKEEPER_CONNECTIONS ?? 4);
const THROUGH_GATE = process.env.GATEKEEPER_PID !== undefined;

// What node-postgres doesn't read from the environment.
const SETTINGS = { enableChannelBinding: process.env.PGCHANNELBINDING === "require" };

const checks = [];
const opened = [];

function check(title, run) {
  checks.push({ title, run });
}

// Logs in; closed after the check, if the check has not done so.
async function connect(options = {}) {
  const client = new Client({ ...SETTINGS, ...options });
  // A session that is lost while nobody asks anything of it tells so here; what is asked of it then fails.
  client.on("error", () => {});
  opened.push(client);
  await client.connect();
  return client;
}

// Past the gatekeeper, to PostgreSQL itself, where TLS is of no interest.
function upstream() {
  return connect({ port: Number(process.env.UPSTREAM_PORT ?? process.env.PGPORT), ssl: false });
}

async function scalar(client, text, values) {
  const { rows } = await client.query({ text, values, rowMode: "array" });
  return rows[0][0];
}

async function fails(promise, code) {
  try {
    await promise;
  } catch (error) {
    assert.equal(error.code, code, error.message);
    return error;
  }
  return assert.fail(`SQLSTATE ${code} was due`);
}

async function until(what, condition) {
  const deadline = Date.now() + CHECK_TIMEOUT / 2;
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, `never happened: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL));
  }
}

// How many statements with this marker run on the server itself.
function running(watcher, marker) {
  const query =
    "SELECT count(*)::int FROM pg_stat_activity WHERE state = 'active' AND query LIKE $1 AND pid <> pg_backend_pid()";
  return scalar(watcher, query, [`%${marker}%`]);
}

function gatekeeperRss() {
  if (!THROUGH_GATE) return 0;
  const status = fs.readFileSync(`/proc/${process.env.GATEKEEPER_PID}/status`, "ascii");
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)[1]) * 1024;
}

// Fails once the gatekeeper has grown while data flow.
function flatMemory() {
  const before = gatekeeperRss();
  return () => {
    const grown = gatekeeperRss() - before;
    assert.ok(grown < RSS_GROWTH_MAX, `the gatekeeper grew by ${grown} bytes`);
  };
}

async function perform({ title, run }) {
  let timer;
  const hang = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`"${title}" hangs`)), CHECK_TIMEOUT);
  });
  try {
    await Promise.race([run(), hang]);
  } finally {
    clearTimeout(timer);
    await Promise.race([Promise.allSettled(opened.splice(0).map((client) => client.end())), hang]).catch(() => {});
  }
}

async function main() {
  let code = 0;
  for (const one of checks) {
    if (!one.title.includes(process.env.CHECK_ONLY ?? "")) continue;
    try {
      await perform(one);
      console.log(`ok     ${one.title}`);
    } catch (error) {
      console.log(`FAILED ${one.title}\n${error.stack}`);
      code = 1;
      if (!process.env.CHECK_ALL) break;
    }
  }
  process.exit(code);
}

module.exports = { CONNECTIONS, SETTINGS, THROUGH_GATE, check, connect, fails, flatMemory, main, running, scalar, until, upstream };
