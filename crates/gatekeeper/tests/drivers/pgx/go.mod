// What the gatekeeper's tests need of Go; built by tests/drivers.rs.
module gatekeeper.test/pgx

go 1.25.0

require (
	gatekeeper.test/harness v0.0.0
	github.com/jackc/pgx/v5 v5.12.0
)

replace gatekeeper.test/harness => ../harness

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	golang.org/x/text v0.41.0 // indirect
)
