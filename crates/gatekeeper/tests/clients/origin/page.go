// A page as browsers load it, and what its script reports.
package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// parts is how many subresources the page has.
const parts = 24

// script loads what isn't in the page, speaks through a WebSocket, and reports what came.
const script = `
async function all() {
  const report = { parts: 0, posted: 0, events: 0, socket: "", protocol: "" };
  const loaded = await Promise.all([...Array(24).keys()].map(n => fetch("/part/" + (n + 100)).then(r => r.text())));
  report.parts = loaded.filter((text, n) => text === "part " + (n + 100) + "\n").length;
  const body = "x".repeat(200000);
  const posted = await fetch("/echo", { method: "POST", body }).then(r => r.text());
  report.posted = posted === body ? posted.length : -1;
  report.events = await new Promise((resolve, reject) => {
    let count = 0;
    const source = new EventSource("/events");
    source.onmessage = () => { if (++count === 3) { source.close(); resolve(count); } };
    source.onerror = () => { source.close(); reject(new Error("events: " + count)); };
  });
  report.socket = await new Promise((resolve, reject) => {
    const socket = new WebSocket(location.origin.replace("http", "ws") + "/socket");
    const heard = [];
    socket.onopen = () => { socket.send("hello"); socket.send("y".repeat(70000)); };
    socket.onmessage = message => {
      heard.push(message.data.length);
      if (heard.length === 2) socket.close(1000);
    };
    socket.onclose = event => resolve(heard.join(",") + " " + event.code);
    socket.onerror = () => reject(new Error("socket"));
  });
  report.images = [...document.images].filter(image => image.complete && image.naturalWidth === 1).length;
  report.styled = getComputedStyle(document.body).color;
  report.protocol = performance.getEntriesByType("navigation")[0].nextHopProtocol;
  return report;
}
addEventListener("load", () => all().catch(error => ({ error: String(error) }))
  .then(report => fetch("/report", { method: "POST", body: JSON.stringify(report) })));
`

// pixel is the smallest image.
const pixel = "GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"

var reported struct {
	sync.Mutex
	all []string
}

func page(response http.ResponseWriter, _ *http.Request) {
	response.Header().Set("Content-Type", "text/html; charset=utf-8")
	var images strings.Builder
	for number := range parts {
		_, _ = fmt.Fprintf(&images, `<img src="/part/%d?kind=image">`, number)
	}
	_, _ = fmt.Fprintf(response, `<!doctype html><link rel="stylesheet" href="/part/0?kind=style">`+
		`<body>%s<script src="/part/0?kind=script"></script>`, images.String())
}

func part(response http.ResponseWriter, request *http.Request) {
	kind, text := "text/plain", "part "+request.PathValue("number")+"\n"
	switch request.URL.Query().Get("kind") {
	case "image":
		kind, text = "image/gif", pixel
	case "style":
		kind, text = "text/css", "body { color: rgb(1, 2, 3) }"
	case "script":
		kind, text = "text/javascript", script
	}
	response.Header().Set("Content-Type", kind)
	response.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(response, text)
}

func report(response http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(io.LimitReader(request.Body, 1<<20))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	reported.Lock()
	defer reported.Unlock()
	reported.all = append(reported.all, string(body))
	response.WriteHeader(http.StatusNoContent)
}

func reports(response http.ResponseWriter, _ *http.Request) {
	reported.Lock()
	defer reported.Unlock()
	say(response, strings.Join(reported.all, "\n"))
}
