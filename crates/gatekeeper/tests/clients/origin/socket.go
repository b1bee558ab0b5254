// A WebSocket (RFC 6455) that sends each message back.
package main

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
)

// longest is what a message may be.
const longest = 16 << 20

func socket(response http.ResponseWriter, request *http.Request) {
	if !strings.EqualFold(request.Header.Get("Upgrade"), "websocket") {
		response.WriteHeader(http.StatusUpgradeRequired)
		return
	}
	accepted := sha1.Sum([]byte(request.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	connection, stream, err := http.NewResponseController(response).Hijack()
	if err != nil {
		response.WriteHeader(http.StatusInternalServerError)
		return
	}
	defer connection.Close()
	sockets.Add(1)
	defer sockets.Add(-1)
	_, _ = io.WriteString(stream, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Accept: "+base64.StdEncoding.EncodeToString(accepted[:])+"\r\n\r\n")
	_ = stream.Flush()
	for {
		first, payload, err := frame(stream.Reader)
		if err != nil {
			return
		}
		switch first & 0x0f {
		case 9: // A ping is answered by a pong.
			first = 0x8a
		case 10:
			continue
		}
		if send(stream.Writer, first, payload) != nil || first&0x0f == 8 {
			return
		}
	}
}

// frame reads one, unmasked.
func frame(reader *bufio.Reader) (first byte, payload []byte, err error) {
	head := make([]byte, 2)
	if _, err = io.ReadFull(reader, head); err != nil {
		return
	}
	length := uint64(head[1] & 0x7f)
	switch length {
	case 126:
		var short uint16
		err = binary.Read(reader, binary.BigEndian, &short)
		length = uint64(short)
	case 127:
		err = binary.Read(reader, binary.BigEndian, &length)
	}
	if err != nil || length > longest {
		return 0, nil, io.ErrUnexpectedEOF
	}
	mask := make([]byte, 4)
	if head[1]&0x80 != 0 {
		if _, err = io.ReadFull(reader, mask); err != nil {
			return
		}
	}
	payload = make([]byte, length)
	_, err = io.ReadFull(reader, payload)
	for index := range payload {
		payload[index] ^= mask[index%4]
	}
	return head[0], payload, err
}

// send writes one, not masked, as a server does.
func send(writer *bufio.Writer, first byte, payload []byte) error {
	head := []byte{first}
	switch length := len(payload); {
	case length < 126:
		head = append(head, byte(length))
	case length < 1<<16:
		head = binary.BigEndian.AppendUint16(append(head, 126), uint16(length))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 127), uint64(length))
	}
	_, _ = writer.Write(head)
	_, _ = writer.Write(payload)
	return writer.Flush()
}
