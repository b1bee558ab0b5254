// Go's own client through the gatekeeper; built by tests/http_clients.rs.
module gatekeeper.test/clients

go 1.25.0

require gatekeeper.test/harness v0.0.0

replace gatekeeper.test/harness => ../../drivers/harness
