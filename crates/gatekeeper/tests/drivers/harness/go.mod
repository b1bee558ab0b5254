// What the checks of Go's drivers share; the modules beside it find it here by a replace directive.
module gatekeeper.test/harness

go 1.22
