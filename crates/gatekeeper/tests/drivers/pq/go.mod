// What the checks of lib/pq need; built by tests/drivers.rs.
module gatekeeper.test/pq

go 1.22

require (
	gatekeeper.test/harness v0.0.0
	github.com/lib/pq v1.12.3
)

replace gatekeeper.test/harness => ../harness
