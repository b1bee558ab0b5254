// Command origin is the site that real clients ask, itself or through the gatekeeper: Go's own server, with HTTP/1.1
// and HTTP/2, in the clear and with TLS. It does what sites do and what is easily done wrong on the way: bodies of
// every framing, trailers, early hints, ranges, streams of events, upgrades, responses that break off.
//
// It is told a certificate and its key, and may be told the port to listen on in the clear; prints the ports of its two
// listeners, and ends with its standard input.
package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync/atomic"
)

// connections is how many were accepted, asked how many requests came, and sockets how many WebSockets are open.
var connections, asked, sockets atomic.Int64

func main() {
	routes := routes()
	handler := http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		asked.Add(1)
		response.Header().Set("X-Proto", request.Proto)
		routes.ServeHTTP(response, request)
	})
	server := &http.Server{
		Handler: handler,
		// What clients do wrong is seen by their checks.
		ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		},
		Protocols: new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	plain, encrypted := listen(append(os.Args, "0")[3]), listen("0")
	certificate, err := tls.LoadX509KeyPair(os.Args[1], os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
	go func() { log.Fatal(server.Serve(plain)) }()
	go func() { log.Fatal(server.ServeTLS(encrypted, "", "")) }()
	fmt.Println(port(plain), port(encrypted))
	// The test that started it is gone when nothing more can come.
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func listen(port string) net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

func port(listener net.Listener) int { return listener.Addr().(*net.TCPAddr).Port }

// counts tells what has come so far.
func counts(response http.ResponseWriter, _ *http.Request) {
	counts := map[string]int64{"connections": connections.Load(), "asked": asked.Load(), "sockets": sockets.Load()}
	_ = json.NewEncoder(response).Encode(counts)
}
