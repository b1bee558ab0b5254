// How mysql2 reaches the server: environment as in ../python/__main__.py.
"use strict";

const fs = require("node:fs");

exports.SETTINGS = {
  host: process.env.MYSQL_HOST,
  port: Number(process.env.MYSQL_TCP_PORT),
  user: process.env.MYSQL_USER,
  password: process.env.MYSQL_PWD,
  database: process.env.MYSQL_DATABASE,
  ssl: process.env.MYSQL_TLS_CA ? { ca: fs.readFileSync(process.env.MYSQL_TLS_CA) } : undefined,
};
