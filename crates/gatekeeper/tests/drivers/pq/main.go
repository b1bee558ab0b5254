// Command pq checks that lib/pq, under database/sql, works through the gatekeeper.
//
// The environment is as in harness/checks.go.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"

	"gatekeeper.test/harness"
	"github.com/lib/pq"
)

// What the checks call by short names.
var (
	connections = harness.Connections
	do          = harness.Do
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
	var server *pq.Error
	if !errors.As(err, &server) || string(server.Code) != code {
		fail("got error %v, want SQLSTATE %s", err, code)
	}
}

// open is a pool of sessions; every option is one of a connection string.
func open(options ...string) *sql.DB {
	connector := got(pq.NewConnector(strings.Join(append([]string{tls()}, options...), " ")))
	return sql.OpenDB(connector)
}

// session is one session, outside any pool.
func session(ctx context.Context, options ...string) *sql.Conn {
	db := open(options...)
	// A session that is closed leaves no connection behind.
	db.SetMaxIdleConns(0)
	return got(db.Conn(ctx))
}

// tls is what PGSSLMODE asks for; without it nothing.
func tls() string {
	if mode := os.Getenv("PGSSLMODE"); mode != "" {
		return "sslmode=" + mode
	}
	return "sslmode=disable"
}

// upstream goes past the gatekeeper to PostgreSQL itself, where TLS is of no interest.
func upstream() string {
	return fmt.Sprintf("sslmode=disable port=%d", envInt("UPSTREAM_PORT", envInt("PGPORT", 5432)))
}

func scalar[T any](ctx context.Context, on harness.Queryer, query string, arguments ...any) T {
	return harness.Scalar[T](ctx, on, query, arguments...)
}

func main() {
	// lib/pq doesn't bind logins to channels, and refuses to be told to.
	must(os.Unsetenv("PGCHANNELBINDING"))
	harness.Main(checks)
}
