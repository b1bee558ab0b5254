// Command pgx checks that pgx, Go's PostgreSQL driver, works through the gatekeeper.
//
// Where to connect comes from libpq's variables (PGHOST, PGPORT, PGUSER, PGPASSWORD, PGDATABASE). Beside them,
// from tests/drivers.rs: GATEKEEPER_PID (absent when the checks run against PostgreSQL itself),
// GATEKEEPER_CONNECTIONS, UPSTREAM_PORT. A check prints one line; the first that fails ends the run, unless
// CHECK_ALL is set. CHECK_ONLY selects by a part of the title. Nothing waits for a time to pass.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// checkTimeout is a bound that only a hang reaches: the slowest check takes a few seconds.
const checkTimeout = 120 * time.Second

// pollInterval is the pause between two looks at a condition, itself bounded by checkTimeout.
const pollInterval = 10 * time.Millisecond

// rssGrowthMax is what the gatekeeper may grow by while 100 MB stream through it.
const rssGrowthMax = 30 << 20

// connections is the gatekeeper's budget of server connections.
var connections = envInt("GATEKEEPER_CONNECTIONS", 4)

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
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != code {
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

// connect logs in; each option changes the configuration before.
func connect(ctx context.Context, options ...func(*pgx.ConnConfig)) *pgx.Conn {
	config := got(pgx.ParseConfig(""))
	for _, option := range options {
		option(config)
	}
	return got(pgx.ConnectConfig(ctx, config))
}

// mode selects how queries are sent unless they say so themselves.
func mode(mode pgx.QueryExecMode) func(*pgx.ConnConfig) {
	return func(config *pgx.ConnConfig) { config.DefaultQueryExecMode = mode }
}

// upstream goes past the gatekeeper to PostgreSQL itself.
func upstream(config *pgx.ConnConfig) {
	config.Port = uint16(envInt("UPSTREAM_PORT", int(config.Port)))
}

// scalar runs a query that returns one value.
func scalar[T any](ctx context.Context, connection queryer, query string, arguments ...any) T {
	var value T
	if err := connection.QueryRow(ctx, query, arguments...).Scan(&value); err != nil {
		fail("%s: %v", query, err)
	}
	return value
}

type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// gatekeeperRSS is the gatekeeper's resident memory in bytes; 0 when there is no gatekeeper.
func gatekeeperRSS() int {
	pid := os.Getenv("GATEKEEPER_PID")
	if pid == "" {
		return 0
	}
	status := got(os.ReadFile("/proc/" + pid + "/status"))
	for _, line := range strings.Split(string(status), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			return got(strconv.Atoi(fields[1])) * 1024
		}
	}
	fail("the gatekeeper's status has no VmRSS")
	return 0
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
