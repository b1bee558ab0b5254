// Command failsafe-go is a reverse proxy that lets in what failsafe-go's adaptive limiter says: the peer in Go that the gate is
// measured beside.
//
// Everything is on 127.0.0.1. The limiter compares recent response times with a baseline; with -queue it lets as many wait as
// twice to three times its limit, as its documentation suggests. A refused client gets 429 (the library's own handler).
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
)

// Connections to the upstream that are kept while they are idle: more than there are ever requests in flight.
const idleMax = 1000

func main() {
	listen := flag.Uint("listen", 0, "port to listen on")
	upstream := flag.Uint("upstream", 0, "port of the service")
	most := flag.Uint("max-limit", 200, "the most requests in flight")
	quantile := flag.Float64("quantile", 0.9, "which of the recent response times is looked at")
	queue := flag.Bool("queue", false, "let two to three times the limit wait")
	flag.Parse()

	initial := min(20, *most)
	builder := adaptivelimiter.NewBuilder[*http.Response]().
		WithLimits(1, *most, initial).
		WithRecentQuantile(*quantile)
	if *queue {
		builder = builder.WithQueueing(2, 3)
	}

	service := &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", *upstream)}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) { request.SetURL(service) },
		Transport: &http.Transport{
			MaxIdleConns:        idleMax,
			MaxIdleConnsPerHost: idleMax,
			IdleConnTimeout:     time.Minute,
		},
		// Clients that leave are no news.
		ErrorHandler: func(writer http.ResponseWriter, _ *http.Request, _ error) {
			writer.WriteHeader(http.StatusBadGateway)
		},
	}
	handler := failsafehttp.NewHandler(proxy, builder.Build())
	log.Fatal(http.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", *listen), handler))
}
