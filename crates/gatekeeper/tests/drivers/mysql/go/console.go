package main

import (
	"context"
	"database/sql"
	"errors"

	"gatekeeper.test/harness"
	"github.com/go-sql-driver/mysql"
)

var consoleChecks = []harness.Check{
	{Title: "lists and commands of the console, prepared and not", Run: console},
}

// lists is what SHOW LISTS says.
func lists(rows *sql.Rows) map[string]int {
	all := map[string]int{}
	for rows.Next() {
		var name string
		var items int
		must(rows.Scan(&name, &items))
		all[name] = items
	}
	must(rows.Err())
	return all
}

func console(ctx context.Context) {
	db := open(func(config *mysql.Config) {
		config.DBName = "gatekeeper"
		// It asks for the server's bound, and sets what is its own.
		config.MaxAllowedPacket = 0
		config.Params = map[string]string{"autocommit": "1", "time_zone": "'+00:00'"}
	})
	must(db.PingContext(ctx))
	text := lists(got(db.QueryContext(ctx, "SHOW LISTS")))
	prepared := got(db.PrepareContext(ctx, "SHOW LISTS"))
	for round := 0; round < 3; round++ {
		binary := lists(got(prepared.QueryContext(ctx)))
		expect("used clients", binary["used_clients"], text["used_clients"])
		expect("lists", len(binary), len(text))
	}
	must(prepared.Close())
	expect("the database", scalar[string](ctx, db, "SELECT DATABASE()"), "gatekeeper")
	do(ctx, db, "PAUSE")
	do(ctx, db, "RESUME")
	_, err := db.ExecContext(ctx, "KILL ?", 17)
	var told *mysql.MySQLError
	if !errors.As(err, &told) || told.Number != 1064 {
		fail("no parameter is taken: %v", err)
	}
	must(db.Close())
}
