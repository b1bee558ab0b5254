package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"gatekeeper.test/harness"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// modes are pgx's five ways of sending a query: cached statements, cached descriptions, a description for each
// query, extended without a description, and the simple protocol.
var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

var checks = []check{
	{"a right password is let in, a wrong one is refused", login},
	{"every query mode over many sessions", queryModes},
	{"statements with the same name in many sessions", prepared},
	{"an error in every query mode leaves the session usable", queryErrors},
	{"a batch is a pipeline", batches},
	{"an error in a batch undoes it and nothing else", batchErrors},
	{"pipeline mode by hand, with several Syncs", pipeline},
	{"COPY in and out", copying},
	{"a COPY that goes wrong, and the session lives on", copyErrors},
	{"transactions with every option", transactionOptions},
	{"nested transactions are savepoints", nested},
	{"a failed transaction stays failed until it ends", failedTransaction},
	{"a context cancelled while its statement runs", cancelRunning},
	{"a context cancelled while its statement waits", cancelWaiting},
	{"a cancel request by hand", cancelRequest},
	{"LISTEN receives what others NOTIFY", listen},
	{"settings stay with their session", settings},
	{"100 MB stream through flat memory", largeResult},
	{"parameters of 10 MB in every mode", largeParameter},
	{"many clients over few server connections", manyClients},
}

func login(ctx context.Context) {
	connection := connect(ctx)
	expect("the user", scalar[string](ctx, connection, "SELECT current_user"), os.Getenv("PGUSER"))
	must(connection.Close(ctx))
	for code, wrong := range map[string]func(*pgx.ConnConfig){
		"28P01": func(config *pgx.ConnConfig) { config.Password = "not the password" },
		"3D000": func(config *pgx.ConnConfig) { config.Database = "no_such_database" },
	} {
		config := got(pgx.ParseConfig(""))
		wrong(config)
		_, err := pgx.ConnectConfig(ctx, config)
		expectCode(err, code)
	}
}

func queryModes(ctx context.Context) {
	for _, way := range modes {
		sessions := make([]*pgx.Conn, 2*connections)
		for index := range sessions {
			sessions[index] = connect(ctx, mode(way))
		}
		for round := 0; round < 4; round++ {
			for index, session := range sessions {
				sum := scalar[int](ctx, session, fmt.Sprintf("SELECT $1::int + %d", index), round)
				expect(way.String(), sum, index+round)
				text := scalar[string](ctx, session, "SELECT $1::text || '!'", "it's")
				expect(way.String(), text, "it's!")
			}
		}
		for _, session := range sessions {
			must(session.Close(ctx))
		}
	}
}

func prepared(ctx context.Context) {
	sessions := make([]*pgx.Conn, 3*connections)
	for index := range sessions {
		sessions[index] = connect(ctx)
		got(sessions[index].Prepare(ctx, "mine", fmt.Sprintf("SELECT $1::int * %d", index)))
	}
	for round := 0; round < 4; round++ {
		for index, session := range sessions {
			expect("a product", scalar[int](ctx, session, "mine", round), round*index)
		}
	}
	must(sessions[0].Deallocate(ctx, "mine"))
	_, err := sessions[0].Exec(ctx, "EXECUTE mine (1)")
	expectCode(err, "26000")
	expect("another's", scalar[int](ctx, sessions[1], "mine", 7), 7)
	must(sessions[1].DeallocateAll(ctx))
	expect("a third's", scalar[int](ctx, sessions[2], "mine", 7), 14)
	for _, session := range sessions {
		must(session.Close(ctx))
	}
}

func queryErrors(ctx context.Context) {
	for _, way := range modes {
		connection := connect(ctx, mode(way))
		for round := 0; round < 2*connections; round++ {
			_, err := connection.Exec(ctx, "SELECT 1 / $1::int", 0)
			expectCode(err, "22012")
			_, err = connection.Exec(ctx, "SELECT no_such_column, $1::int", 1)
			expectCode(err, "42703")
			expect(way.String(), scalar[int](ctx, connection, "SELECT $1::int", round), round)
		}
		must(connection.Close(ctx))
	}
}

func batches(ctx context.Context) {
	for _, way := range modes {
		connection := connect(ctx, mode(way))
		batch := &pgx.Batch{}
		for number := 0; number < 300; number++ {
			batch.Queue("SELECT $1::int", number)
		}
		results := connection.SendBatch(ctx, batch)
		for number := 0; number < 300; number++ {
			var value int
			must(results.QueryRow().Scan(&value))
			expect(way.String(), value, number)
		}
		must(results.Close())
		must(connection.Close(ctx))
	}
}

func batchErrors(ctx context.Context) {
	connection := connect(ctx)
	got(connection.Exec(ctx, "DROP TABLE IF EXISTS batched"))
	got(connection.Exec(ctx, "CREATE TABLE batched (a int)"))
	for round := 0; round < connections; round++ {
		batch := &pgx.Batch{}
		batch.Queue("INSERT INTO batched VALUES ($1)", 1)
		batch.Queue("SELECT 1 / $1::int", 0)
		batch.Queue("INSERT INTO batched VALUES ($1)", 2)
		expectCode(connection.SendBatch(ctx, batch).Close(), "22012")
		expect("rows", scalar[int](ctx, connection, "SELECT count(*) FROM batched"), 0)
	}
	transaction := got(connection.Begin(ctx))
	batch := &pgx.Batch{}
	batch.Queue("INSERT INTO batched VALUES ($1)", 3)
	batch.Queue("INSERT INTO batched VALUES ($1)", 4)
	must(transaction.SendBatch(ctx, batch).Close())
	must(transaction.Commit(ctx))
	expect("the sum", scalar[int](ctx, connection, "SELECT sum(a) FROM batched"), 7)
	got(connection.Exec(ctx, "DROP TABLE batched"))
	must(connection.Close(ctx))
}

func pipeline(ctx context.Context) {
	connection := connect(ctx)
	pipeline := connection.PgConn().StartPipeline(ctx)
	for number := 0; number < 50; number++ {
		value := []byte(fmt.Sprint(number))
		pipeline.SendQueryParams("SELECT $1::int8", [][]byte{value}, nil, nil, nil)
		must(pipeline.Sync())
	}
	for number := 0; number < 50; number++ {
		reader, isReader := got(pipeline.GetResults()).(*pgconn.ResultReader)
		if !isReader {
			fail("no rows where rows were due")
		}
		result := reader.Read()
		must(result.Err)
		expect("a value", string(result.Rows[0][0]), fmt.Sprint(number))
		if _, isSync := got(pipeline.GetResults()).(*pgconn.PipelineSync); !isSync {
			fail("no end of the batch where it was due")
		}
	}
	must(pipeline.Close())
	expect("the session", scalar[int](ctx, connection, "SELECT 1"), 1)
	must(connection.Close(ctx))
}

func copying(ctx context.Context) {
	const rows = 100_000
	connection := connect(ctx)
	got(connection.Exec(ctx, "DROP TABLE IF EXISTS gopied"))
	got(connection.Exec(ctx, "CREATE TABLE gopied (id int, name text)"))
	source := pgx.CopyFromSlice(rows, func(row int) ([]any, error) { return []any{row, fmt.Sprint("name ", row)}, nil })
	copied := got(connection.CopyFrom(ctx, pgx.Identifier{"gopied"}, []string{"id", "name"}, source))
	expect("rows in", copied, int64(rows))
	expect("the sum", scalar[int64](ctx, connection, "SELECT sum(id) FROM gopied"), rows*(rows-1)/2)
	var text strings.Builder
	tag := got(connection.PgConn().CopyTo(ctx, &text, "COPY gopied TO STDOUT"))
	expect("rows out", tag.RowsAffected(), int64(rows))
	expect("lines", strings.Count(text.String(), "\n"), rows)
	got(connection.Exec(ctx, "TRUNCATE gopied"))
	tag = got(connection.PgConn().CopyFrom(ctx, strings.NewReader(text.String()), "COPY gopied FROM STDIN"))
	expect("rows in again", tag.RowsAffected(), int64(rows))
	got(connection.Exec(ctx, "DROP TABLE gopied"))
	must(connection.Close(ctx))
}

func copyErrors(ctx context.Context) {
	connection := connect(ctx)
	got(connection.Exec(ctx, "DROP TABLE IF EXISTS miscopied"))
	got(connection.Exec(ctx, "CREATE TABLE miscopied (a int CHECK (a <> 7))"))
	for round := 0; round < connections; round++ {
		bad := pgx.CopyFromSlice(50_000, func(row int) ([]any, error) { return []any{row}, nil })
		_, err := connection.CopyFrom(ctx, pgx.Identifier{"miscopied"}, []string{"a"}, bad)
		expectCode(err, "23514")
		given := errors.New("given up")
		stops := pgx.CopyFromSlice(50_000, func(row int) ([]any, error) {
			if row == 1000 {
				return nil, given
			}
			return []any{100}, nil
		})
		if _, err = connection.CopyFrom(ctx, pgx.Identifier{"miscopied"}, []string{"a"}, stops); err == nil {
			fail("the client's error was lost")
		}
		expect("rows", scalar[int](ctx, connection, "SELECT count(*) FROM miscopied"), 0)
	}
	got(connection.Exec(ctx, "DROP TABLE miscopied"))
	must(connection.Close(ctx))
}

func settings(ctx context.Context) {
	zones := []string{"UTC", "Asia/Tokyo", "Europe/Berlin"}
	sessions := make([]*pgx.Conn, 3*connections)
	for index := range sessions {
		sessions[index] = connect(ctx)
		got(sessions[index].Exec(ctx, "SET TIME ZONE '"+zones[index%len(zones)]+"'"))
	}
	for round := 0; round < 3; round++ {
		for index, session := range sessions {
			expect("the zone", scalar[string](ctx, session, "SELECT current_setting('TimeZone')"), zones[index%len(zones)])
		}
	}
	for _, session := range sessions {
		must(session.Close(ctx))
	}
}

func largeResult(ctx context.Context) {
	for _, way := range modes {
		connection := connect(ctx, mode(way))
		before := gatekeeperRSS()
		rows := got(connection.Query(ctx, "SELECT repeat('x', 10000) FROM generate_series(1, $1::int)", 10_500))
		received, count := 0, 0
		for rows.Next() {
			received += len(rows.RawValues()[0])
			if count++; count%500 == 0 {
				if grown := gatekeeperRSS() - before; grown > rssGrowthMax {
					fail("the gatekeeper grew by %d bytes", grown)
				}
			}
		}
		must(rows.Err())
		expect("bytes", received, 105_000_000)
		must(connection.Close(ctx))
	}
}

func largeParameter(ctx context.Context) {
	text := strings.Repeat("0123456789", 1_000_000)
	for _, way := range modes {
		connection := connect(ctx, mode(way))
		expect(way.String(), scalar[int](ctx, connection, "SELECT length($1::text)", text), len(text))
		must(connection.Close(ctx))
	}
}

func manyClients(ctx context.Context) {
	setup := connect(ctx)
	got(setup.Exec(ctx, "DROP TABLE IF EXISTS golden"))
	got(setup.Exec(ctx, "CREATE TABLE golden (id int PRIMARY KEY, n int)"))
	got(setup.Exec(ctx, "INSERT INTO golden SELECT id, 0 FROM generate_series(0, 9) id"))
	clients, steps := 10*connections, 10
	harness.Together(clients, func(seed int) {
		connection := connect(ctx, mode(modes[seed%len(modes)]))
		for step := 0; step < steps; step++ {
			transaction := got(connection.Begin(ctx))
			got(transaction.Exec(ctx, "UPDATE golden SET n = n + 1 WHERE id = $1", (seed+step)%10))
			must(transaction.Commit(ctx))
		}
		must(connection.Close(ctx))
	})
	expect("the sum", scalar[int](ctx, setup, "SELECT sum(n) FROM golden"), clients*steps)
	got(setup.Exec(ctx, "DROP TABLE golden"))
	must(setup.Close(ctx))
}
