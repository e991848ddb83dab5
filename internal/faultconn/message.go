package faultconn

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// A Direction of a connection, or both.
type Direction uint8

const (
	// Requests go from the client to the server.
	Requests Direction = 1 << iota
	// Replies go from the server to the client.
	Replies
	// Both directions.
	Both = Requests | Replies
)

// index is where a single direction has its place in an array of two.
func (d Direction) index() int { return int(d) - 1 }

func (d Direction) String() string {
	switch d {
	case Requests:
		return "requests"
	case Replies:
		return "replies"
	}
	return "both directions"
}

// Pseudo types for what has no type byte, as [Proxy.Seen] counts them.
const (
	Startup       byte = 1 // a client's first message
	CancelRequest byte = 2 // the message of a connection that cancels a statement
	TLSRequest    byte = 3 // SSLRequest or GSSENCRequest, and its one-byte answer
)

const (
	codeCancel = 80877102
	codeTLS    = 80877103
	codeGSS    = 80877104
)

// maxMessage is more than any test sends; a longer one means that the stream was
// misread.
const maxMessage = 64 << 20

// message is one protocol message as it was on the wire.
type message struct {
	typ   byte // 0 for opaque bytes
	bytes []byte
}

// body is what follows the type and the length.
func (m message) body() []byte {
	if len(m.bytes) < 5 {
		return nil
	}
	return m.bytes[5:]
}

// readTyped reads the rest of a message that starts with a type byte.
func readTyped(r *bufio.Reader) (message, error) {
	head, err := r.Peek(5)
	if err != nil {
		return message{}, err
	}
	length := int64(binary.BigEndian.Uint32(head[1:]))
	if length < 4 || length > maxMessage {
		return message{}, fmt.Errorf("message %q of %d bytes", head[0], length)
	}
	m := message{typ: head[0], bytes: make([]byte, 1+length)}
	_, err = io.ReadFull(r, m.bytes)
	return m, err
}

// readStartup reads a client's message of the time before types.
func readStartup(r *bufio.Reader) (message, error) {
	head, err := r.Peek(8)
	if err != nil {
		return message{}, err
	}
	length := int64(binary.BigEndian.Uint32(head))
	if length < 8 || length > maxMessage {
		return message{}, fmt.Errorf("startup message of %d bytes", length)
	}
	m := message{typ: Startup, bytes: make([]byte, length)}
	switch binary.BigEndian.Uint32(head[4:]) {
	case codeCancel:
		m.typ = CancelRequest
	case codeTLS, codeGSS:
		m.typ = TLSRequest
	}
	_, err = io.ReadFull(r, m.bytes)
	return m, err
}

// readOpaque reads what is there.
func readOpaque(r *bufio.Reader) (message, error) {
	if _, err := r.Peek(1); err != nil {
		return message{}, err
	}
	m := message{bytes: make([]byte, r.Buffered())}
	_, err := io.ReadFull(r, m.bytes)
	return m, err
}

// A Match describes a message.
type Match struct {
	// From is the direction, Requests or Replies.
	From Direction
	// Type is the message's type byte in the protocol: 'C' is CommandComplete of
	// the server and Close of the client.
	Type byte
	// Prefix is how the body begins: the tag of a CommandComplete, the text of a
	// Query.
	Prefix string
	// Contains is a text anywhere in the body.
	Contains string
	// Skip is how many matching messages pass first.
	Skip int
}

// CommandComplete matches the server's report that a command has been executed,
// by its tag: "INSERT", "DELETE 1", "SELECT".
func CommandComplete(tag string) Match { return Match{From: Replies, Type: 'C', Prefix: tag} }

// Statement matches the message that brings a statement with the given text to
// the server: a Query, or the Parse of the extended protocol. A statement
// prepared earlier has neither.
func Statement(text string) Match { return Match{From: Requests, Contains: text} }

func (match Match) matches(from Direction, m message) bool {
	if from != match.From || m.typ == 0 {
		return false
	}
	if match.Type == 0 && match.From == Requests {
		if m.typ != 'Q' && m.typ != 'P' {
			return false
		}
	} else if match.Type != m.typ {
		return false
	}
	body := string(m.body())
	return strings.HasPrefix(body, match.Prefix) && strings.Contains(body, match.Contains)
}
