// What the site serves.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// largest is how much a response may be told to be.
const largest = 100 << 20

func routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(response http.ResponseWriter, _ *http.Request) { say(response, "hello\n") })
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/sum", sum)
	mux.HandleFunc("/about", about)
	mux.HandleFunc("/status/{status}", status)
	mux.HandleFunc("/hints", hints)
	mux.HandleFunc("/redirect", func(response http.ResponseWriter, request *http.Request) {
		http.Redirect(response, request, "/hello", http.StatusFound)
	})
	mux.HandleFunc("/bytes/{count}", content)
	mux.HandleFunc("/gzip", compressed)
	mux.HandleFunc("/pieces/{count}", pieces)
	mux.HandleFunc("/events", events)
	mux.HandleFunc("/early", early)
	mux.HandleFunc("/cut", cut)
	mux.HandleFunc("/wait", func(_ http.ResponseWriter, request *http.Request) { <-request.Context().Done() })
	mux.HandleFunc("/work", work)
	mux.HandleFunc("/socket", socket)
	mux.HandleFunc("/counts", counts)
	mux.HandleFunc("/page", page)
	mux.HandleFunc("/part/{number}", part)
	mux.HandleFunc("/report", report)
	mux.HandleFunc("/reports", reports)
	return mux
}

func say(response http.ResponseWriter, text string) {
	response.Header().Set("Content-Type", "text/plain")
	_, _ = io.WriteString(response, text)
}

// echo sends back what comes, as it comes.
func echo(response http.ResponseWriter, request *http.Request) {
	// Else Go's server reads the whole of a body before it lets a response begin.
	_ = http.NewResponseController(response).EnableFullDuplex()
	response.Header().Set("X-Method", request.Method)
	response.Header().Set("Content-Type", "application/octet-stream")
	if request.ContentLength >= 0 {
		response.Header().Set("Content-Length", strconv.FormatInt(request.ContentLength, 10))
	}
	buffer := make([]byte, 32<<10)
	for {
		count, err := request.Body.Read(buffer)
		if _, failed := response.Write(buffer[:count]); failed != nil {
			return
		}
		if request.ContentLength < 0 {
			_ = http.NewResponseController(response).Flush()
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// sum tells a body's checksum in a trailer, and the trailer that came with it in another.
func sum(response http.ResponseWriter, request *http.Request) {
	hash := sha256.New()
	length, err := io.Copy(hash, request.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	response.Header().Set("Trailer", "X-Sum, X-Heard")
	_, _ = fmt.Fprintf(response, "%d\n", length)
	// Behind a body with a length HTTP/1.1 has no place for them.
	_ = http.NewResponseController(response).Flush()
	response.Header().Set("X-Sum", fmt.Sprintf("%x", hash.Sum(nil)))
	response.Header().Set("X-Heard", request.Trailer.Get("X-Note"))
}

// about tells how a request came.
func about(response http.ResponseWriter, request *http.Request) {
	_, _ = fmt.Fprintf(response, "%s %s host=%s\n", request.Method, request.RequestURI, request.Host)
	for name, values := range request.Header {
		_, _ = fmt.Fprintf(response, "%s: %s\n", name, strings.Join(values, ", "))
	}
}

func status(response http.ResponseWriter, request *http.Request) {
	status, err := strconv.Atoi(request.PathValue("status"))
	if err != nil || status < 200 || status > 599 {
		status = http.StatusBadRequest
	}
	response.Header().Set("ETag", `"1"`)
	response.WriteHeader(status)
	if status != http.StatusNoContent && status != http.StatusNotModified {
		_, _ = fmt.Fprintf(response, "%d\n", status)
	}
}

// hints says twice what will be needed, before the response.
func hints(response http.ResponseWriter, _ *http.Request) {
	response.Header().Set("Link", "</part/1>; rel=preload")
	response.WriteHeader(http.StatusEarlyHints)
	response.WriteHeader(http.StatusEarlyHints)
	say(response, "hinted\n")
}

// content has ranges, validators and a length.
func content(response http.ResponseWriter, request *http.Request) {
	count, err := strconv.Atoi(request.PathValue("count"))
	if err != nil || count < 0 || count > largest {
		response.WriteHeader(http.StatusBadRequest)
		return
	}
	response.Header().Set("Content-Type", "application/octet-stream")
	response.Header().Set("ETag", fmt.Sprintf(`"%d"`, count))
	whole := bytes.Repeat([]byte("0123456789abcdef"), count/16+1)[:count]
	http.ServeContent(response, request, "", time.Time{}, bytes.NewReader(whole))
}

func compressed(response http.ResponseWriter, request *http.Request) {
	response.Header().Set("Vary", "Accept-Encoding")
	if !strings.Contains(request.Header.Get("Accept-Encoding"), "gzip") {
		say(response, "plain\n")
		return
	}
	response.Header().Set("Content-Encoding", "gzip")
	writer := gzip.NewWriter(response)
	_, _ = io.WriteString(writer, "compressed\n")
	_ = writer.Close()
}

// pieces comes in so many pieces, without a length.
func pieces(response http.ResponseWriter, request *http.Request) {
	count, _ := strconv.Atoi(request.PathValue("count"))
	for number := range min(count, 10_000) {
		_, _ = fmt.Fprintf(response, "piece %d\n", number)
		_ = http.NewResponseController(response).Flush()
	}
}

// events is a stream: three events, each sent at once, and an end.
func events(response http.ResponseWriter, _ *http.Request) {
	response.Header().Set("Content-Type", "text/event-stream")
	for number := range 3 {
		_, _ = fmt.Fprintf(response, "data: %d\n\n", number)
		_ = http.NewResponseController(response).Flush()
	}
}

// early answers without reading the body.
func early(response http.ResponseWriter, _ *http.Request) {
	response.Header().Set("Connection", "close")
	response.WriteHeader(http.StatusRequestEntityTooLarge)
	_, _ = io.WriteString(response, "too large\n")
}

// work takes five milliseconds.
func work(response http.ResponseWriter, _ *http.Request) {
	time.Sleep(5 * time.Millisecond)
	say(response, "done\n")
}

// cut breaks off in the middle of its response.
func cut(response http.ResponseWriter, _ *http.Request) {
	response.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(response, "the beginning")
	_ = http.NewResponseController(response).Flush()
	panic(http.ErrAbortHandler)
}
