// Command pgx checks that pgx, Go's PostgreSQL driver, works through the gatekeeper.
//
// The environment is as in harness/checks.go.
package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"

	"gatekeeper.test/harness"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// rssGrowthMax is what the gatekeeper may grow by while 100 MB stream through it.
const rssGrowthMax = 30 << 20

// What the checks call by short names.
var (
	connections = harness.Connections
	envInt      = harness.EnvInt
	fail        = harness.Fail
	must        = harness.Must
	until       = harness.Until
)

type check = harness.Check

func got[T any](value T, err error) T { return harness.Got(value, err) }

func expect[T comparable](what string, got, want T) { harness.Expect(what, got, want) }

// expectCode ends the check unless err is the server's error of this SQLSTATE.
func expectCode(err error, code string) {
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != code {
		fail("got error %v, want SQLSTATE %s", err, code)
	}
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

// upstream goes past the gatekeeper to PostgreSQL itself, where TLS is of no interest.
func upstream(config *pgx.ConnConfig) {
	config.TLSConfig, config.ChannelBinding = nil, "disable"
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

func main() {
	harness.Main(checks)
}
