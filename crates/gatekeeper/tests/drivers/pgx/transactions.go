package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"gatekeeper.test/harness"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func transactionOptions(ctx context.Context) {
	connection := connect(ctx)
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		for access, readOnly := range map[pgx.TxAccessMode]string{pgx.ReadOnly: "on", pgx.ReadWrite: "off"} {
			for _, deferrable := range []pgx.TxDeferrableMode{pgx.Deferrable, pgx.NotDeferrable} {
				options := pgx.TxOptions{IsoLevel: level, AccessMode: access, DeferrableMode: deferrable}
				transaction := got(connection.BeginTx(ctx, options))
				isolation := scalar[string](ctx, transaction, "SELECT current_setting('transaction_isolation')")
				expect("the isolation", isolation, string(level))
				found := scalar[string](ctx, transaction, "SELECT current_setting('transaction_read_only')")
				expect("read only", found, readOnly)
				must(transaction.Commit(ctx))
			}
		}
	}
	empty := got(connection.Begin(ctx))
	expect("the state", connection.PgConn().TxStatus(), 'T')
	must(empty.Commit(ctx))
	expect("the state", connection.PgConn().TxStatus(), 'I')
	must(connection.Close(ctx))
}

func nested(ctx context.Context) {
	connection := connect(ctx)
	got(connection.Exec(ctx, "DROP TABLE IF EXISTS gonested"))
	got(connection.Exec(ctx, "CREATE TABLE gonested (a int)"))
	outer := got(connection.Begin(ctx))
	// The first savepoint comes before the first statement.
	inner := got(outer.Begin(ctx))
	got(inner.Exec(ctx, "INSERT INTO gonested VALUES ($1)", 1))
	must(inner.Rollback(ctx))
	inner = got(outer.Begin(ctx))
	got(inner.Exec(ctx, "INSERT INTO gonested VALUES ($1)", 2))
	must(inner.Commit(ctx))
	inner = got(outer.Begin(ctx))
	_, err := inner.Exec(ctx, "SELECT 1 / $1::int", 0)
	expectCode(err, "22012")
	must(inner.Rollback(ctx))
	must(outer.Commit(ctx))
	expect("the sum", scalar[int](ctx, connection, "SELECT sum(a) FROM gonested"), 2)
	got(connection.Exec(ctx, "DROP TABLE gonested"))
	must(connection.Close(ctx))
}

func failedTransaction(ctx context.Context) {
	connection := connect(ctx)
	for round := 0; round < connections; round++ {
		transaction := got(connection.Begin(ctx))
		_, err := transaction.Exec(ctx, "SELECT 1 / $1::int", 0)
		expectCode(err, "22012")
		_, err = transaction.Exec(ctx, "SELECT 1")
		expectCode(err, "25P02")
		expect("the state", connection.PgConn().TxStatus(), 'E')
		if err = transaction.Commit(ctx); !errors.Is(err, pgx.ErrTxCommitRollback) {
			fail("a failed transaction's commit said %v", err)
		}
		expect("the state", connection.PgConn().TxStatus(), 'I')
	}
	must(connection.Close(ctx))
}

// statements counts the active statements with this marker on the server itself.
func statements(ctx context.Context, watcher *pgx.Conn, marker string) int {
	return scalar[int](ctx, watcher, "SELECT count(*) FROM pg_stat_activity "+
		"WHERE state = 'active' AND query LIKE '%' || $1 || '%' AND pid <> pg_backend_pid()", marker)
}

func cancelRunning(ctx context.Context) {
	watcher := connect(ctx, upstream)
	bystander := connect(ctx)
	for round := 0; round < 3; round++ {
		connection := connect(ctx)
		marker := fmt.Sprintf("go-cancel-running-%d", round)
		cancellable, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			_, err := connection.Exec(cancellable, "/* "+marker+" */ SELECT pg_sleep(600)")
			ended <- err
		}()
		until(ctx, "the statement runs", func() bool { return statements(ctx, watcher, marker) == 1 })
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			fail("the statement ended with %v", err)
		}
		// pgx closes the session, and asks for the statement's end behind our back.
		until(ctx, "the statement is gone", func() bool { return statements(ctx, watcher, marker) == 0 })
		expect("a bystander", scalar[int](ctx, bystander, "SELECT 1"), 1)
	}
	must(bystander.Close(ctx))
	must(watcher.Close(ctx))
}

func cancelWaiting(ctx context.Context) {
	holders := make([]pgx.Tx, connections)
	for index := range holders {
		holders[index] = got(connect(ctx).Begin(ctx))
		expect("a holder", scalar[int](ctx, holders[index], "SELECT 1"), 1)
	}
	if os.Getenv("GATEKEEPER_PID") != "" {
		// Every server connection is held, so these wait, and leave the queue with their clients.
		for round := 0; round < 5; round++ {
			connection := connect(ctx, mode(pgx.QueryExecModeExec))
			soon, cancel := context.WithTimeout(ctx, 5*harness.PollInterval)
			_, err := connection.Exec(soon, "SELECT 1")
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				fail("a statement that waits ended with %v", err)
			}
		}
	}
	for _, holder := range holders {
		must(holder.Commit(ctx))
		must(holder.Conn().Close(ctx))
	}
	fresh := connect(ctx)
	expect("a fresh session", scalar[int](ctx, fresh, "SELECT 1"), 1)
	must(fresh.Close(ctx))
}

func cancelRequest(ctx context.Context) {
	watcher := connect(ctx, upstream)
	connection := connect(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := connection.Exec(ctx, "/* go-cancel-request */ SELECT pg_sleep(600)")
		ended <- err
	}()
	until(ctx, "the statement runs", func() bool { return statements(ctx, watcher, "go-cancel-request") == 1 })
	must(connection.PgConn().CancelRequest(ctx))
	expectCode(<-ended, "57014")
	expect("the session", scalar[int](ctx, connection, "SELECT 1"), 1)
	must(connection.Close(ctx))
	must(watcher.Close(ctx))
}

func listen(ctx context.Context) {
	mine, other := connect(ctx), connect(ctx)
	until(ctx, "room to pin", func() bool {
		_, err := mine.Exec(ctx, "LISTEN gophers")
		var server *pgconn.PgError
		if errors.As(err, &server) && server.Code == "53300" {
			return false
		}
		must(err)
		return true
	})
	for number := 0; number < 5; number++ {
		got(other.Exec(ctx, "SELECT pg_notify('gophers', $1)", fmt.Sprint(number)))
		expect("the payload", got(mine.WaitForNotification(ctx)).Payload, fmt.Sprint(number))
	}
	got(mine.Exec(ctx, "UNLISTEN *"))
	expect("the session", scalar[int](ctx, mine, "SELECT 1"), 1)
	must(mine.Close(ctx))
	must(other.Close(ctx))
}
