// What the checks of go-sql-driver/mysql need; built by tests/mysql_drivers.rs.
module gatekeeper.test/mysql

go 1.24.0

require (
	gatekeeper.test/harness v0.0.0
	github.com/go-sql-driver/mysql v1.10.1
)

require filippo.io/edwards25519 v1.2.0 // indirect

replace gatekeeper.test/harness => ../../harness
