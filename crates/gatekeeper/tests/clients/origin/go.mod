// The site that real clients are checked with; built by tests/http_clients.rs.
module gatekeeper.test/origin

go 1.25.0
