// What the checks of lib/pq need; built by tests/drivers.rs.
module gatekeeper.test/pq

go 1.22

require github.com/lib/pq v1.12.3
