// Package harness is the runner that the checks of Go's drivers share.
//
// Where to connect comes from libpq's variables (PGHOST, PGPORT, PGUSER, PGPASSWORD, PGDATABASE; with TLS PGSSLMODE,
// PGSSLROOTCERT and PGCHANNELBINDING). Beside them, from tests/drivers.rs: GATEKEEPER_PID (absent when the checks run
// against PostgreSQL itself), GATEKEEPER_CONNECTIONS, UPSTREAM_PORT. A check prints one line; the first that fails ends
// the run, unless CHECK_ALL is set. CHECK_ONLY selects by a part of the title. Nothing waits for a time to pass.
package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// checkTimeout is a bound that only a hang reaches: the slowest check takes a few seconds.
const checkTimeout = 120 * time.Second

// PollInterval is the pause between two looks at a condition, itself bounded by checkTimeout.
const PollInterval = 10 * time.Millisecond

// Connections is the gatekeeper's budget of server connections.
var Connections = EnvInt("GATEKEEPER_CONNECTIONS", 4)

// ThroughGate tells whether there is a gatekeeper at all.
var ThroughGate = os.Getenv("GATEKEEPER_PID") != ""

// Check is a function with a sentence for a name.
type Check struct {
	Title string
	Run   func(context.Context)
}

// failure is what Fail panics with, so that a failed check is told from a bug in a check.
type failure struct{ message string }

// Fail ends the check.
func Fail(format string, arguments ...any) {
	panic(failure{fmt.Sprintf(format, arguments...)})
}

// Must ends the check if there was an error.
func Must(err error) {
	if err != nil {
		Fail("%v", err)
	}
}

// Got ends the check if there was an error, and passes the value on.
func Got[T any](value T, err error) T {
	Must(err)
	return value
}

// Expect ends the check unless both are equal.
func Expect[T comparable](what string, got, want T) {
	if got != want {
		Fail("%s: got %v, want %v", what, got, want)
	}
}

// Until polls a condition until it holds; the check's own bound ends it otherwise.
func Until(ctx context.Context, what string, condition func() bool) {
	for !condition() {
		select {
		case <-ctx.Done():
			Fail("never happened: %s", what)
		case <-time.After(PollInterval):
		}
	}
}

// EnvInt is a number from the environment.
func EnvInt(name string, absent int) int {
	value, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return absent
	}
	return value
}

// Perform runs one check and reports what it failed with.
func Perform(check Check) (problem error) {
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
	check.Run(ctx)
	return nil
}

// Together calls work with 0, 1 and so on at the same time, and ends the check with the first failure.
func Together(count int, work func(number int)) {
	var group sync.WaitGroup
	problems := make(chan error, count)
	for number := range count {
		group.Add(1)
		go func() {
			defer group.Done()
			problems <- Perform(Check{"one of many", func(context.Context) { work(number) }})
		}()
	}
	group.Wait()
	close(problems)
	for problem := range problems {
		Must(problem)
	}
}

// Main runs the checks, and ends the process.
func Main(checks []Check) {
	code := 0
	for _, check := range checks {
		if !strings.Contains(check.Title, os.Getenv("CHECK_ONLY")) {
			continue
		}
		if problem := Perform(check); problem != nil {
			fmt.Printf("FAILED %s\n%v\n", check.Title, problem)
			code = 1
			if os.Getenv("CHECK_ALL") == "" {
				break
			}
			continue
		}
		fmt.Printf("ok     %s\n", check.Title)
	}
	os.Exit(code)
}
