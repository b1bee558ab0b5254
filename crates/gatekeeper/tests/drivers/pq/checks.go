package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"gatekeeper.test/harness"
	"github.com/lib/pq"
)

// binary makes lib/pq send parameters in one batch with the statement, which it otherwise describes first.
const binary = "binary_parameters=yes"

var checks = []check{
	{"a right password is let in, a wrong one is refused", login},
	{"start-up parameters hold for their session and for no other", startUp},
	{"many sessions share few server connections", sharing},
	{"statements with and without parameters, in both of lib/pq's ways", statements},
	{"prepared statements of many sessions and of a pool", prepared},
	{"an error leaves its session usable, and tells all its fields", queryErrors},
	{"several statements in one text", several},
	{"a batch of rows by COPY", copying},
	{"a COPY that goes wrong, and the session lives on", copyErrors},
	{"a cursor in a transaction", cursor},
	{"transactions with every isolation level", isolation},
	{"savepoints undo a part", savepoints},
	{"a failed transaction stays failed until it ends", failedTransaction},
	{"a context cancelled while its statement runs", cancelRunning},
	{"a context cancelled within a transaction", cancelInTransaction},
	{"a listener receives what others NOTIFY", listen},
	{"settings stay with their session", settings},
	{"large results and parameters", large},
	{"many clients over few server connections", manyClients},
}

func login(ctx context.Context) {
	db := open()
	expect("the user", scalar[string](ctx, db, "SELECT current_user"), os.Getenv("PGUSER"))
	must(db.Close())
	for code, wrong := range map[string]string{
		"28P01": "password=wrong",
		"3D000": "dbname=no_such_database",
	} {
		expectCode(open(wrong).PingContext(ctx), code)
	}
}

func startUp(ctx context.Context) {
	named := session(ctx, "application_name=named", "statement_timeout=12345", "options='-c work_mem=5MB'")
	plain := session(ctx)
	for round := 0; round < 2*connections; round++ {
		expect("the name", scalar[string](ctx, named, "SHOW application_name"), "named")
		expect("the time-out", scalar[string](ctx, named, "SHOW statement_timeout"), "12345ms")
		expect("the memory", scalar[string](ctx, named, "SHOW work_mem"), "5MB")
		expect("another's time-out", scalar[string](ctx, plain, "SHOW statement_timeout"), "0")
	}
}

func sharing(ctx context.Context) {
	pids := map[int]bool{}
	sessions := make([]*sql.Conn, 3*connections)
	for index := range sessions {
		sessions[index] = session(ctx)
	}
	for _, one := range sessions {
		pids[scalar[int](ctx, one, "SELECT pg_backend_pid()")] = true
		defer func() { must(one.Close()) }()
	}
	if harness.ThroughGate && len(pids) > connections {
		fail("%d sessions ran on %d server connections", len(sessions), len(pids))
	}
}

func statements(ctx context.Context) {
	for _, way := range []string{"", binary} {
		sessions := make([]*sql.Conn, 2*connections)
		for index := range sessions {
			sessions[index] = session(ctx, way)
		}
		for round := 0; round < 4; round++ {
			for index, one := range sessions {
				expect("a number", scalar[int](ctx, one, fmt.Sprintf("SELECT %d", index)), index)
				expect("a sum", scalar[int](ctx, one, "SELECT $1::int + $2::int", index, round), index+round)
				expect("a text", scalar[string](ctx, one, "SELECT $1::text || '!'", "it's"), "it's!")
				list := scalar[pq.StringArray](ctx, one, "SELECT $1::text[]", pq.StringArray{"a", `b"c`})
				expect("a list", strings.Join(list, "|"), `a|b"c`)
				expect("nothing", scalar[sql.NullInt64](ctx, one, "SELECT $1::int", nil).Valid, false)
			}
		}
		for _, one := range sessions {
			must(one.Close())
		}
	}
}

func prepared(ctx context.Context) {
	sessions := make([]*sql.Conn, 3*connections)
	products := make([]*sql.Stmt, len(sessions))
	for index := range sessions {
		// lib/pq counts its names within a session, so that every one here has the same.
		sessions[index] = session(ctx)
		products[index] = got(sessions[index].PrepareContext(ctx, fmt.Sprintf("SELECT $1::int * %d", index)))
	}
	for round := 0; round < 4; round++ {
		for index, product := range products {
			var value int
			must(product.QueryRowContext(ctx, round).Scan(&value))
			expect("a product", value, round*index)
		}
	}
	for index := range sessions {
		must(products[index].Close())
		must(sessions[index].Close())
	}
	db := open()
	db.SetMaxIdleConns(3 * connections)
	if !harness.ThroughGate {
		// PostgreSQL itself takes no more than 100 sessions.
		db.SetMaxOpenConns(50)
	}
	shared := got(db.PrepareContext(ctx, "SELECT $1::int + 1"))
	harness.Together(200, func(number int) {
		var value int
		must(shared.QueryRowContext(ctx, number).Scan(&value))
		expect("the sum", value, number+1)
	})
	must(shared.Close())
	must(db.Close())
}

func queryErrors(ctx context.Context) {
	for _, way := range []string{"", binary} {
		one := session(ctx, way)
		for round := 0; round < 2*connections; round++ {
			_, err := one.ExecContext(ctx, "SELECT 1/0")
			expectCode(err, "22012")
			_, err = one.ExecContext(ctx, "SELECT 1 / $1::int", 0)
			expectCode(err, "22012")
			_, err = one.PrepareContext(ctx, "SELECT no_such_column")
			expectCode(err, "42703")
			expect("a number", scalar[int](ctx, one, "SELECT $1::int", round), round)
		}
		_, err := one.ExecContext(ctx, "DO $$ BEGIN RAISE 'mine' USING ERRCODE = 'GK001', DETAIL = 'why', HINT = 'so'; END $$")
		var server *pq.Error
		if !errors.As(err, &server) || server.Message != "mine" || server.Detail != "why" || server.Hint != "so" {
			fail("the error's fields: %#v", err)
		}
		must(one.Close())
	}
}

func several(ctx context.Context) {
	one := session(ctx)
	do(ctx, one, "DROP TABLE IF EXISTS pqs; CREATE TABLE pqs (a int); INSERT INTO pqs VALUES (1)")
	_, err := one.ExecContext(ctx, "INSERT INTO pqs VALUES (2); SELECT 1/0")
	expectCode(err, "22012")
	rows := got(one.QueryContext(ctx, "SELECT a FROM pqs; SELECT 2"))
	for _, want := range []int{1, 2} {
		var value int
		if !rows.Next() {
			fail("no row")
		}
		must(rows.Scan(&value))
		expect("a value", value, want)
		rows.Next()
		expect("another result", rows.NextResultSet(), want == 1)
	}
	must(rows.Close())
	do(ctx, one, "DROP TABLE pqs")
	must(one.Close())
}

func copying(ctx context.Context) {
	const count = 50_000
	one := session(ctx)
	do(ctx, one, "DROP TABLE IF EXISTS pqopied")
	do(ctx, one, "CREATE TABLE pqopied (id int, name text)")
	transaction := got(one.BeginTx(ctx, nil))
	copier := got(transaction.PrepareContext(ctx, "COPY pqopied (id, name) FROM STDIN"))
	for row := 0; row < count; row++ {
		got(copier.ExecContext(ctx, row, fmt.Sprint("name\t", row)))
	}
	expect("rows", got(got(copier.ExecContext(ctx)).RowsAffected()), count)
	must(copier.Close())
	must(transaction.Commit())
	expect("the sum", scalar[int](ctx, one, "SELECT sum(id) FROM pqopied"), count*(count-1)/2)
	do(ctx, one, "DROP TABLE pqopied")
	must(one.Close())
}

func copyErrors(ctx context.Context) {
	one := session(ctx)
	do(ctx, one, "DROP TABLE IF EXISTS mispqopied")
	do(ctx, one, "CREATE TABLE mispqopied (id int CHECK (id <> 7))")
	for round := 0; round < connections; round++ {
		transaction := got(one.BeginTx(ctx, nil))
		copier := got(transaction.PrepareContext(ctx, "COPY mispqopied FROM STDIN"))
		var err error
		for row := 0; row < 100_000 && err == nil; row++ {
			_, err = copier.ExecContext(ctx, row)
		}
		if err == nil {
			_, err = copier.ExecContext(ctx)
		}
		expectCode(err, "23514")
		_ = copier.Close()
		must(transaction.Rollback())
		expect("rows", scalar[int](ctx, one, "SELECT count(*) FROM mispqopied"), 0)
		// Given up by the client.
		transaction = got(one.BeginTx(ctx, nil))
		copier = got(transaction.PrepareContext(ctx, "COPY mispqopied FROM STDIN"))
		got(copier.ExecContext(ctx, 1))
		must(copier.Close())
		must(transaction.Rollback())
		expect("rows", scalar[int](ctx, one, "SELECT count(*) FROM mispqopied"), 0)
	}
	do(ctx, one, "DROP TABLE mispqopied")
	must(one.Close())
}

func cursor(ctx context.Context) {
	one := session(ctx)
	transaction := got(one.BeginTx(ctx, nil))
	do(ctx, transaction, "DECLARE numbers CURSOR FOR SELECT generate_series(1, 1000)")
	total := 0
	for {
		rows := got(transaction.QueryContext(ctx, "FETCH 300 FROM numbers"))
		count := 0
		for ; rows.Next(); count++ {
		}
		must(rows.Err())
		if total += count; count == 0 {
			break
		}
	}
	expect("rows", total, 1000)
	must(transaction.Commit())
	must(one.Close())
}

func isolation(ctx context.Context) {
	one := session(ctx)
	levels := map[sql.IsolationLevel]string{
		sql.LevelReadCommitted: "read committed", sql.LevelRepeatableRead: "repeatable read", sql.LevelSerializable: "serializable",
	}
	for level, name := range levels {
		for readOnly, shown := range map[bool]string{true: "on", false: "off"} {
			transaction := got(one.BeginTx(ctx, &sql.TxOptions{Isolation: level, ReadOnly: readOnly}))
			expect("the isolation", scalar[string](ctx, transaction, "SHOW transaction_isolation"), name)
			expect("read only", scalar[string](ctx, transaction, "SHOW transaction_read_only"), shown)
			must(transaction.Commit())
		}
	}
	expect("afterwards", scalar[string](ctx, one, "SHOW transaction_isolation"), "read committed")
	must(got(one.BeginTx(ctx, nil)).Commit())
	must(one.Close())
}

func savepoints(ctx context.Context) {
	one := session(ctx)
	do(ctx, one, "DROP TABLE IF EXISTS pqsaved")
	do(ctx, one, "CREATE TABLE pqsaved (a int)")
	transaction := got(one.BeginTx(ctx, nil))
	do(ctx, transaction, "SAVEPOINT first")
	do(ctx, transaction, "INSERT INTO pqsaved VALUES ($1)", 1)
	do(ctx, transaction, "ROLLBACK TO first")
	do(ctx, transaction, "INSERT INTO pqsaved VALUES ($1)", 2)
	do(ctx, transaction, "SAVEPOINT second")
	_, err := transaction.ExecContext(ctx, "SELECT 1 / $1::int", 0)
	expectCode(err, "22012")
	do(ctx, transaction, "ROLLBACK TO second")
	do(ctx, transaction, "INSERT INTO pqsaved VALUES ($1)", 4)
	must(transaction.Commit())
	expect("the sum", scalar[int](ctx, one, "SELECT sum(a) FROM pqsaved"), 6)
	do(ctx, one, "DROP TABLE pqsaved")
	must(one.Close())
}

func failedTransaction(ctx context.Context) {
	one := session(ctx)
	for round := 0; round < connections; round++ {
		transaction := got(one.BeginTx(ctx, nil))
		_, err := transaction.ExecContext(ctx, "SELECT 1/0")
		expectCode(err, "22012")
		_, err = transaction.ExecContext(ctx, "SELECT $1::int", 1)
		expectCode(err, "25P02")
		if err = transaction.Commit(); err == nil {
			fail("a failed transaction was committed")
		}
		expect("the session", scalar[int](ctx, one, "SELECT 1"), 1)
	}
	must(one.Close())
}

// active counts the running statements with this marker on the server itself.
func active(ctx context.Context, watcher *sql.Conn, marker string) int {
	return scalar[int](ctx, watcher, "SELECT count(*) FROM pg_stat_activity "+
		"WHERE state = 'active' AND query LIKE '%' || $1 || '%' AND pid <> pg_backend_pid()", marker)
}

func cancelRunning(ctx context.Context) {
	watcher, bystander := session(ctx, upstream()), session(ctx)
	for round := 0; round < 3; round++ {
		one := session(ctx)
		marker := fmt.Sprintf("pq-cancel-%d", round)
		cancellable, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			_, err := one.ExecContext(cancellable, "/* "+marker+" */ SELECT pg_sleep(600)")
			ended <- err
		}()
		until(ctx, "the statement runs", func() bool { return active(ctx, watcher, marker) == 1 })
		cancel()
		if err := <-ended; err == nil {
			fail("the statement ended well")
		}
		until(ctx, "the statement is gone", func() bool { return active(ctx, watcher, marker) == 0 })
		expect("a bystander", scalar[int](ctx, bystander, "SELECT 1"), 1)
		_ = one.Close()
	}
	must(bystander.Close())
	must(watcher.Close())
}

func cancelInTransaction(ctx context.Context) {
	db := open()
	do(ctx, db, "DROP TABLE IF EXISTS pqancelled")
	do(ctx, db, "CREATE TABLE pqancelled (a int)")
	for round := 0; round < connections; round++ {
		soon, cancel := context.WithTimeout(ctx, 5*harness.PollInterval)
		transaction := got(db.BeginTx(soon, nil))
		_, _ = transaction.ExecContext(soon, "INSERT INTO pqancelled VALUES (1)")
		_, err := transaction.ExecContext(soon, "SELECT pg_sleep(600)")
		cancel()
		if err == nil {
			fail("the statement ended well")
		}
		_ = transaction.Rollback()
	}
	lock := got(db.BeginTx(ctx, nil))
	do(ctx, lock, "LOCK TABLE pqancelled IN ACCESS EXCLUSIVE MODE")
	expect("rows", scalar[int](ctx, lock, "SELECT count(*) FROM pqancelled"), 0)
	do(ctx, lock, "DROP TABLE pqancelled")
	must(lock.Commit())
	must(db.Close())
}

func listen(ctx context.Context) {
	listener := pq.NewListener(tls(), time.Second, time.Minute, nil)
	must(listener.Listen("pqs"))
	db := open()
	for number := 0; number < 5; number++ {
		do(ctx, db, "SELECT pg_notify('pqs', $1)", fmt.Sprint(number))
		select {
		case notification := <-listener.Notify:
			expect("the payload", notification.Extra, fmt.Sprint(number))
		case <-ctx.Done():
			fail("no notification came")
		}
	}
	must(listener.Ping())
	must(listener.Close())
	must(db.Close())
}

func settings(ctx context.Context) {
	zones := []string{"UTC", "Asia/Tokyo", "Europe/Berlin"}
	sessions := make([]*sql.Conn, 3*connections)
	for index := range sessions {
		sessions[index] = session(ctx)
		do(ctx, sessions[index], "SET TIME ZONE '"+zones[index%len(zones)]+"'")
	}
	for round := 0; round < 3; round++ {
		for index, one := range sessions {
			expect("the zone", scalar[string](ctx, one, "SELECT current_setting('TimeZone')"), zones[index%len(zones)])
		}
	}
	for _, one := range sessions {
		must(one.Close())
	}
}

func large(ctx context.Context) {
	text := strings.Repeat("0123456789", 1_000_000)
	for _, way := range []string{"", binary} {
		one := session(ctx, way)
		expect("its length", scalar[int](ctx, one, "SELECT length($1::text)", text), len(text))
		rows := got(one.QueryContext(ctx, "SELECT repeat('x', 10000) FROM generate_series(1, $1::int)", 5_000))
		received := 0
		for rows.Next() {
			var piece sql.RawBytes
			must(rows.Scan(&piece))
			received += len(piece)
		}
		must(rows.Err())
		expect("bytes", received, 50_000_000)
		must(one.Close())
	}
}

func manyClients(ctx context.Context) {
	db := open()
	do(ctx, db, "DROP TABLE IF EXISTS pqolden")
	do(ctx, db, "CREATE TABLE pqolden (id int PRIMARY KEY, n int)")
	do(ctx, db, "INSERT INTO pqolden SELECT id, 0 FROM generate_series(0, 9) id")
	clients, steps := 10*connections, 10
	harness.Together(clients, func(seed int) {
		one := session(ctx, []string{"", binary}[seed%2])
		for step := 0; step < steps; step++ {
			transaction := got(one.BeginTx(ctx, nil))
			do(ctx, transaction, "UPDATE pqolden SET n = n + 1 WHERE id = $1", (seed+step)%10)
			must(transaction.Commit())
		}
		must(one.Close())
	})
	expect("the sum", scalar[int](ctx, db, "SELECT sum(n) FROM pqolden"), clients*steps)
	do(ctx, db, "DROP TABLE pqolden")
	must(db.Close())
}
