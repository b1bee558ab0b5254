// Command pq checks that lib/pq, under database/sql, works through the gatekeeper.
//
// Where to connect comes from libpq's variables (PGHOST, PGPORT, PGUSER, PGPASSWORD, PGDATABASE). Beside them,
// from tests/drivers.rs: GATEKEEPER_PID (absent when the checks run against PostgreSQL itself),
// GATEKEEPER_CONNECTIONS, UPSTREAM_PORT. A check prints one line; the first that fails ends the run, unless
// CHECK_ALL is set. CHECK_ONLY selects by a part of the title. Nothing waits for a time to pass.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/lib/pq"
)

// checkTimeout is a bound that only a hang reaches: the slowest check takes a few seconds.
const checkTimeout = 120 * time.Second

// pollInterval is the pause between two looks at a condition, itself bounded by checkTimeout.
const pollInterval = 10 * time.Millisecond

// connections is the gatekeeper's budget of server connections.
var connections = envInt("GATEKEEPER_CONNECTIONS", 4)

// throughGate tells whether there is a gatekeeper at all.
var throughGate = os.Getenv("GATEKEEPER_PID") != ""

type check struct {
	title string
	run   func(context.Context)
}

// failure is what must panics with, so that a failed check is told from a bug in a check.
type failure struct{ message string }

func fail(format string, arguments ...any) {
	panic(failure{fmt.Sprintf(format, arguments...)})
}

// must ends the check if there was an error.
func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}

// got ends the check if there was an error, and passes the value on.
func got[T any](value T, err error) T {
	must(err)
	return value
}

func expect[T comparable](what string, got, want T) {
	if got != want {
		fail("%s: got %v, want %v", what, got, want)
	}
}

// expectCode ends the check unless err is the server's error of this SQLSTATE.
func expectCode(err error, code string) {
	var server *pq.Error
	if !errors.As(err, &server) || string(server.Code) != code {
		fail("got error %v, want SQLSTATE %s", err, code)
	}
}

// until polls a condition until it holds; the check's own bound ends it otherwise.
func until(ctx context.Context, what string, condition func() bool) {
	for !condition() {
		select {
		case <-ctx.Done():
			fail("never happened: %s", what)
		case <-time.After(pollInterval):
		}
	}
}

func envInt(name string, absent int) int {
	value, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return absent
	}
	return value
}

// open is a pool of sessions; every option is one of a connection string.
func open(options ...string) *sql.DB {
	connector := got(pq.NewConnector(strings.Join(append([]string{tls()}, options...), " ")))
	return sql.OpenDB(connector)
}

// session is one session, outside any pool.
func session(ctx context.Context, options ...string) *sql.Conn {
	return got(open(options...).Conn(ctx))
}

// tls is what PGSSLMODE asks for; without it nothing.
func tls() string {
	if mode := os.Getenv("PGSSLMODE"); mode != "" {
		return "sslmode=" + mode
	}
	return "sslmode=disable"
}

// upstream goes past the gatekeeper to PostgreSQL itself.
func upstream() string {
	return fmt.Sprintf("port=%d", envInt("UPSTREAM_PORT", envInt("PGPORT", 5432)))
}

type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// scalar runs a query that returns one value.
func scalar[T any](ctx context.Context, on queryer, query string, arguments ...any) T {
	var value T
	if err := on.QueryRowContext(ctx, query, arguments...).Scan(&value); err != nil {
		fail("%s: %v", query, err)
	}
	return value
}

// do runs a statement that must succeed.
func do(ctx context.Context, on queryer, query string, arguments ...any) {
	got(on.ExecContext(ctx, query, arguments...))
}

// perform runs one check and reports what it failed with.
func perform(check check) (problem error) {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	defer func() {
		switch value := recover().(type) {
		case nil:
		case failure:
			problem = errors.New(value.message)
		default:
			panic(value)
		}
	}()
	check.run(ctx)
	return nil
}

func main() {
	code := 0
	for _, check := range checks {
		if !strings.Contains(check.title, os.Getenv("CHECK_ONLY")) {
			continue
		}
		if problem := perform(check); problem != nil {
			fmt.Printf("FAILED %s\n%v\n", check.title, problem)
			code = 1
			if os.Getenv("CHECK_ALL") == "" {
				break
			}
			continue
		}
		fmt.Printf("ok     %s\n", check.title)
	}
	os.Exit(code)
}
