// Command clients checks that net/http, Go's own client, works through the gatekeeper.
//
// Where to ask comes from the environment, as in site_under_test.py; what else is read is in harness/checks.go.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"

	h "gatekeeper.test/harness"
)

// way is one of getting there: an address and what is spoken.
type way struct {
	url    string
	proto  string
	client *http.Client
}

// ways are HTTP/1.1 and HTTP/2, in the clear and with TLS. Redirections aren't followed.
func ways() []way {
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(h.Got(os.ReadFile(os.Getenv("SITE_CA")))) {
		h.Fail("SITE_CA isn't a certificate")
	}
	var all []way
	for _, url := range []string{os.Getenv("SITE_URL"), os.Getenv("SITE_TLS_URL")} {
		for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
			protocols := new(http.Protocols)
			protocols.SetHTTP1(proto == "HTTP/1.1")
			protocols.SetHTTP2(proto == "HTTP/2.0")
			protocols.SetUnencryptedHTTP2(proto == "HTTP/2.0")
			client := &http.Client{
				Transport: &http.Transport{
					Protocols:       protocols,
					TLSClientConfig: &tls.Config{RootCAs: authorities},
					MaxConnsPerHost: 50,
				},
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			}
			all = append(all, way{url, proto, client})
		}
	}
	return all
}

// ask sends a request and reads the whole response.
func (way way) ask(ctx context.Context, method, path string, body io.Reader) (*http.Response, string) {
	request := h.Got(http.NewRequestWithContext(ctx, method, way.url+path, body))
	response := h.Got(way.client.Do(request))
	defer response.Body.Close()
	text := h.Got(io.ReadAll(response.Body))
	h.Expect("the version", response.Proto, way.proto)
	return response, string(text)
}

func each(check func(context.Context, way)) func(context.Context) {
	return func(ctx context.Context) {
		for _, way := range ways() {
			check(ctx, way)
			way.client.CloseIdleConnections()
		}
	}
}

func pages(ctx context.Context, way way) {
	for range 50 {
		response, text := way.ask(ctx, "GET", "/hello", nil)
		h.Expect("the status", response.StatusCode, 200)
		h.Expect("the page", text, "hello\n")
	}
}

func bodies(ctx context.Context, way way) {
	content := make([]byte, 2_000_000)
	_, _ = rand.Read(content)
	_, text := way.ask(ctx, "POST", "/echo", bytes.NewReader(content))
	h.Expect("what came back", text == string(content), true)
	// Of this reader nobody knows the length.
	_, text = way.ask(ctx, "PUT", "/echo", io.MultiReader(bytes.NewReader(content)))
	h.Expect("what came back in pieces", text == string(content), true)
}

func trailers(ctx context.Context, way way) {
	request := h.Got(http.NewRequestWithContext(ctx, "POST", way.url+"/sum", io.MultiReader(strings.NewReader("abc"))))
	request.Trailer = http.Header{"X-Note": {"behind the body"}}
	request.Header.Set("TE", "trailers")
	response := h.Got(way.client.Do(request))
	defer response.Body.Close()
	_ = h.Got(io.ReadAll(response.Body))
	h.Expect("the sum", response.Trailer.Get("X-Sum"), fmt.Sprintf("%x", sha256.Sum256([]byte("abc"))))
	h.Expect("the trailer of the request", response.Trailer.Get("X-Heard"), "behind the body")
}

func bodiless(ctx context.Context, way way) {
	for _, status := range []int{204, 304, 200, 404, 500, 599} {
		response, _ := way.ask(ctx, "GET", fmt.Sprint("/status/", status), nil)
		h.Expect("the status", response.StatusCode, status)
	}
	response, text := way.ask(ctx, "HEAD", "/bytes/12345", nil)
	h.Expect("the length", response.ContentLength, 12345)
	h.Expect("the body", text, "")
	response, _ = way.ask(ctx, "GET", "/redirect", nil)
	h.Expect("where to", response.Header.Get("Location"), "/hello")
	_, text = way.ask(ctx, "GET", "/hints", nil)
	h.Expect("behind the hints", text, "hinted\n")
}

func expecting(ctx context.Context, way way) {
	request := h.Got(http.NewRequestWithContext(ctx, "POST", way.url+"/echo", strings.NewReader("asked for")))
	request.Header.Set("Expect", "100-continue")
	response := h.Got(way.client.Do(request))
	defer response.Body.Close()
	h.Expect("what came back", string(h.Got(io.ReadAll(response.Body))), "asked for")
}

func streams(ctx context.Context, way way) {
	// What is sent comes back before the next is sent.
	reader, writer := io.Pipe()
	request := h.Got(http.NewRequestWithContext(ctx, "POST", way.url+"/echo", reader))
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(writer, "first\n")
		sent <- err
	}()
	response := h.Got(way.client.Do(request))
	defer response.Body.Close()
	buffer := make([]byte, 6)
	_ = h.Got(io.ReadFull(response.Body, buffer))
	h.Must(<-sent)
	h.Expect("the first line", string(buffer), "first\n")
	go func() { _, _ = io.WriteString(writer, "second"); _ = writer.Close() }()
	h.Expect("the rest", string(h.Got(io.ReadAll(response.Body))), "second")
}

func many(ctx context.Context, way way) {
	var all sync.WaitGroup
	problems := make(chan error, 300)
	for number := range 300 {
		all.Go(func() {
			problems <- h.Perform(h.Check{Run: func(ctx context.Context) {
				_, text := way.ask(ctx, "GET", fmt.Sprint("/part/", number), nil)
				h.Expect("its own answer", text, fmt.Sprintf("part %d\n", number))
			}})
		})
	}
	all.Wait()
	close(problems)
	for problem := range problems {
		h.Must(problem)
	}
}

func canceled(ctx context.Context, way way) {
	for range 20 {
		leaving, leave := context.WithCancel(ctx)
		request := h.Got(http.NewRequestWithContext(leaving, "GET", way.url+"/bytes/20000000", nil))
		response := h.Got(way.client.Do(request))
		_ = h.Got(io.ReadFull(response.Body, make([]byte, 1000)))
		leave()
		_, err := io.Copy(io.Discard, response.Body)
		h.Expect("it was left", errors.Is(err, context.Canceled), true)
		_ = response.Body.Close()
	}
	pages(ctx, way)
}

func cut(ctx context.Context, way way) {
	request := h.Got(http.NewRequestWithContext(ctx, "GET", way.url+"/cut", nil))
	response, err := way.client.Do(request)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	if err == nil {
		h.Fail("half a response was taken for a whole one")
	}
	pages(ctx, way)
}

func main() {
	h.Main([]h.Check{
		{Title: "pages come in the version that is spoken", Run: each(pages)},
		{Title: "bodies with and without a length come back", Run: each(bodies)},
		{Title: "trailers pass both ways", Run: each(trailers)},
		{Title: "responses of every kind", Run: each(bodiless)},
		{Title: "a body that waits to be asked for", Run: each(expecting)},
		{Title: "a conversation in one request", Run: each(streams)},
		{Title: "many at the same time, each with its own answer", Run: each(many)},
		{Title: "responses that are left halfway", Run: each(canceled)},
		{Title: "a response that breaks off is an error", Run: each(cut)},
	})
}
