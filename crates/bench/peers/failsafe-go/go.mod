// A peer that the gate is measured beside (`bench run peers-origin`); `scripts/setup peers` builds it.
module gatekeeper.bench/failsafe-go

go 1.25.0

require github.com/failsafe-go/failsafe-go v0.9.8

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
)
