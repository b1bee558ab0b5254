// go-sql-driver/mysql by database/sql, through the gatekeeper.
//
// The environment is as in ../python/__main__.py, and what else harness/checks.go reads.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"gatekeeper.test/harness"
	"github.com/go-sql-driver/mysql"
)

var (
	connections = harness.Connections
	do          = harness.Do
	fail        = harness.Fail
	must        = harness.Must
)

func got[T any](value T, err error) T { return harness.Got(value, err) }

func expect[T comparable](what string, got, want T) { harness.Expect(what, got, want) }

var checks = []harness.Check{
	{Title: "a right password is let in, a wrong one and an unknown database are refused", Run: login},
	{Title: "values of every type, in text and in binary", Run: values},
	{Title: "prepared statements of many sessions and of a pool", Run: prepared},
	{Title: "ids, numbers of rows, and rows that didn't change", Run: results},
	{Title: "several statements in one text, and a procedure's results", Run: several},
	{Title: "transactions with every isolation level, and read-only ones", Run: isolation},
	{Title: "an error leaves its session usable", Run: sessionErrors},
	{Title: "a context cancelled while its statement runs", Run: cancelled},
	{Title: "settings of a connection string hold for their session and for no other", Run: settings},
	{Title: "a parameter of 20 MB, and rows without end", Run: large},
	{Title: "many clients over few server connections", Run: many},
}

// config is how to reach the gate, changed by the check.
func config(change func(*mysql.Config)) *mysql.Config {
	config := mysql.NewConfig()
	config.Net, config.Addr = "tcp", os.Getenv("MYSQL_HOST")+":"+os.Getenv("MYSQL_TCP_PORT")
	config.User, config.Passwd, config.DBName = os.Getenv("MYSQL_USER"), os.Getenv("MYSQL_PWD"), os.Getenv("MYSQL_DATABASE")
	if file := os.Getenv("MYSQL_TLS_CA"); file != "" {
		authorities := x509.NewCertPool()
		authorities.AppendCertsFromPEM(got(os.ReadFile(file)))
		config.TLS = &tls.Config{RootCAs: authorities, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	}
	if change != nil {
		change(config)
	}
	return config
}

func open(change func(*mysql.Config)) *sql.DB {
	return sql.OpenDB(got(mysql.NewConnector(config(change))))
}

func upstream() *sql.DB {
	port := strconv.Itoa(harness.EnvInt("UPSTREAM_PORT", harness.EnvInt("MYSQL_TCP_PORT", 3306)))
	return open(func(config *mysql.Config) { config.Addr, config.TLS = "127.0.0.1:"+port, nil })
}

func scalar[T any](ctx context.Context, on harness.Queryer, query string, arguments ...any) T {
	return harness.Scalar[T](ctx, on, query, arguments...)
}

func expectError(err error, number uint16) {
	var server *mysql.MySQLError
	if !errors.As(err, &server) || server.Number != number {
		fail("got error %v, want %d", err, number)
	}
}

func login(ctx context.Context) {
	db := open(nil)
	fmt.Println(scalar[string](ctx, db, "SELECT CURRENT_USER()"), scalar[string](ctx, db, "SELECT DATABASE()"))
	must(db.Close())
	expectError(open(func(config *mysql.Config) { config.Passwd = "wrong" }).PingContext(ctx), 1045)
	expectError(open(func(config *mysql.Config) { config.DBName = "no_such_database" }).PingContext(ctx), 1049)
}

func values(ctx context.Context) {
	db := open(func(config *mysql.Config) { config.ParseTime = true })
	do(ctx, db, "CREATE TABLE every_type (a BIGINT UNSIGNED, b DOUBLE, c DATETIME(6), d LONGBLOB, e TEXT, f DECIMAL(20, 5), g TINYINT)")
	instant := time.Date(2026, 2, 28, 23, 59, 59, 123456000, time.UTC)
	do(ctx, db, "INSERT INTO every_type VALUES (?, ?, ?, ?, ?, ?, ?)", uint64(1<<63), 1.5e-300, instant, []byte{0, 1, 255}, "ä 😀", "-1.5", nil)
	for _, query := range []string{"SELECT * FROM every_type", "SELECT * FROM every_type WHERE 1 = ?"} {
		var arguments []any
		if strings.Contains(query, "?") {
			arguments = append(arguments, 1)
		}
		var a uint64
		var b float64
		var c time.Time
		var d []byte
		var e, f string
		var g sql.NullInt64
		must(db.QueryRowContext(ctx, query, arguments...).Scan(&a, &b, &c, &d, &e, &f, &g))
		fmt.Println(a, b, c, d, e, f, g)
	}
	must(db.Close())
}

func prepared(ctx context.Context) {
	db := open(nil)
	statement := got(db.PrepareContext(ctx, "SELECT ? + 1"))
	harness.Together(3*connections, func(int) {
		for round := 0; round < 10; round++ {
			var sum int
			must(statement.QueryRowContext(ctx, round).Scan(&sum))
			expect("the sum", sum, round+1)
		}
	})
	must(statement.Close())
	must(db.Close())
}

func results(ctx context.Context) {
	for _, found := range []bool{false, true} {
		db := open(func(config *mysql.Config) { config.ClientFoundRows = found })
		do(ctx, db, "CREATE OR REPLACE TABLE results (id INT AUTO_INCREMENT PRIMARY KEY, a INT)")
		for round := 0; round < 2*connections; round++ {
			inserted := do(ctx, db, "INSERT INTO results (a) VALUES (?), (?)", round, round)
			same := do(ctx, db, "UPDATE results SET a = ? WHERE a = ?", round, round)
			fmt.Println(got(inserted.LastInsertId()), got(inserted.RowsAffected()), got(same.RowsAffected()))
		}
		must(db.Close())
	}
}

func several(ctx context.Context) {
	db := open(func(config *mysql.Config) { config.MultiStatements = true })
	do(ctx, db, "CREATE OR REPLACE PROCEDURE parts(a INT) BEGIN SELECT a; SELECT a * 2, 'x'; END")
	for _, query := range []string{"SELECT 1; SELECT 2, 3; SELECT 4", "CALL parts(5)"} {
		rows := got(db.QueryContext(ctx, query))
		for more := true; more; more = rows.NextResultSet() {
			columns := got(rows.Columns())
			count := 0
			for rows.Next() {
				count++
			}
			fmt.Println(columns, count)
		}
		must(rows.Err())
		must(rows.Close())
	}
	must(db.Close())
}

func isolation(ctx context.Context) {
	db := open(nil)
	do(ctx, db, "CREATE OR REPLACE TABLE isolated (a INT)")
	for _, level := range []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		tx := got(db.BeginTx(ctx, &sql.TxOptions{Isolation: level}))
		do(ctx, tx, "INSERT INTO isolated VALUES (1)")
		fmt.Println(level, scalar[int](ctx, tx, "SELECT COUNT(*) FROM isolated"), scalar[string](ctx, db, "SELECT @@tx_isolation"))
		must(tx.Rollback())
	}
	tx := got(db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}))
	_, err := tx.ExecContext(ctx, "INSERT INTO isolated VALUES (2)")
	expectError(err, 1792)
	must(tx.Rollback())
	fmt.Println(scalar[int](ctx, db, "SELECT COUNT(*) FROM isolated"))
	must(db.Close())
}

func sessionErrors(ctx context.Context) {
	session := got(open(nil).Conn(ctx))
	do(ctx, session, "CREATE OR REPLACE TABLE unique_ones (a INT PRIMARY KEY)")
	for round := 0; round < 2*connections; round++ {
		do(ctx, session, "INSERT INTO unique_ones VALUES (?)", round)
		_, err := session.ExecContext(ctx, "INSERT INTO unique_ones VALUES (?)", round)
		expectError(err, 1062)
		_, err = session.ExecContext(ctx, "SELECT * FROM no_such_table WHERE a = ?", 1)
		expectError(err, 1146)
	}
	fmt.Println(scalar[int](ctx, session, "SELECT COUNT(*) FROM unique_ones"))
	must(session.Close())
}

func cancelled(ctx context.Context) {
	db, watcher := open(nil), upstream()
	running := func() bool {
		asked := "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%go-victim%' AND id <> CONNECTION_ID()"
		return scalar[int](ctx, watcher, asked) > 0
	}
	inner, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(inner, "SELECT COUNT(*), SLEEP(5) FROM seq_1_to_10 /* go-victim */")
		ended <- err
	}()
	harness.Until(ctx, "the statement runs", running)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		fail("%v", err)
	}
	fmt.Println(scalar[int](ctx, db, "SELECT 1"))
	must(db.Close())
	must(watcher.Close())
}

func settings(ctx context.Context) {
	zoned := got(open(func(config *mysql.Config) {
		config.Params = map[string]string{"time_zone": "'+02:00'", "sql_mode": "'ANSI_QUOTES'"}
		config.Collation = "utf8mb4_bin"
	}).Conn(ctx))
	plain := got(open(nil).Conn(ctx))
	asked := "SELECT CONCAT_WS(' ', @@time_zone, @@sql_mode, @@collation_connection)"
	for round := 0; round < connections; round++ {
		fmt.Println(scalar[string](ctx, zoned, asked), scalar[string](ctx, plain, asked))
	}
	must(zoned.Close())
	must(plain.Close())
}

func large(ctx context.Context) {
	db := open(nil)
	fmt.Println(scalar[int](ctx, db, "SELECT LENGTH(?)", strings.Repeat("x", 20_000_000)))
	rows := got(db.QueryContext(ctx, "SELECT REPEAT('y', 10000) FROM seq_1_to_5000"))
	count := 0
	for rows.Next() {
		count++
	}
	must(rows.Err())
	fmt.Println(count)
	must(db.Close())
}

func many(ctx context.Context) {
	db := open(func(config *mysql.Config) { config.InterpolateParams = true })
	do(ctx, db, "CREATE OR REPLACE TABLE counted (id INT PRIMARY KEY, n INT)")
	do(ctx, db, "INSERT INTO counted VALUES (1, 0)")
	harness.Together(8*connections, func(int) {
		for round := 0; round < 5; round++ {
			tx := got(db.BeginTx(ctx, nil))
			do(ctx, tx, "UPDATE counted SET n = n + ? WHERE id = 1", 1)
			must(tx.Commit())
		}
	})
	fmt.Println(scalar[int](ctx, db, "SELECT n FROM counted"))
	must(db.Close())
}

// once logs in once, and says what it got: the answer to a query, or the number of an error.
func once() {
	var one int
	err := open(nil).QueryRow("SELECT 1").Scan(&one)
	var told *mysql.MySQLError
	switch {
	case err == nil:
		fmt.Println(one)
	case errors.As(err, &told):
		fmt.Println(told.Number)
	default:
		fmt.Println(err)
	}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "login" {
		once()
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "console" {
		checks = consoleChecks
	}
	harness.Main(checks)
}
