// What checks on top of database/sql share.

package harness

import (
	"context"
	"database/sql"
)

// Queryer is a pool, a session, or a transaction.
type Queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Scalar runs a query that returns one value.
func Scalar[T any](ctx context.Context, on Queryer, query string, arguments ...any) T {
	var value T
	if err := on.QueryRowContext(ctx, query, arguments...).Scan(&value); err != nil {
		Fail("%s: %v", query, err)
	}
	return value
}

// Do runs a statement that must succeed.
func Do(ctx context.Context, on Queryer, query string, arguments ...any) sql.Result {
	return Got(on.ExecContext(ctx, query, arguments...))
}
