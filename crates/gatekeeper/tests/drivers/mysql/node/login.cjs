// mysql2 logs in once, and says what it got: the answer to a query, or the number of an error.
"use strict";

const mysql = require("mysql2/promise");
const { SETTINGS } = require("./settings.cjs");

async function main() {
  const connection = await mysql.createConnection(SETTINGS);
  const [rows] = await connection.query("SELECT 1 AS one");
  console.log(rows[0].one);
  await connection.end();
}

main().catch((error) => console.log(error.errno ?? error.message));
