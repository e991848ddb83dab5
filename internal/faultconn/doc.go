// Package faultconn is a relay between a PostgreSQL client and its server that
// tests use to make the network misbehave at a chosen moment.
//
// # Model
//
// A [Proxy] listens on loopback and relays every connection to one upstream
// address. Each [Conn] has two directions, [Requests] from the client to the
// server and [Replies] back. A direction is a reader, a queue and a writer:
//
//	source -> reader -> queue -> writer -> destination
//
// The reader cuts the stream into messages of the PostgreSQL protocol (version
// 3), counts them and looks for traps. The writer forwards each message whole,
// when it is due and its direction is not frozen. So a frozen link still takes
// in what is sent to it, as a network's buffers do, and a counter says what was
// sent, not what arrived. A connection that turns to TLS is relayed from then on
// without looking into it: nothing is counted or trapped.
//
// # Promises
//
//   - Faults change time and endings only: what arrives is a prefix of what was
//     sent, in order and cut at a message's edge.
//   - A fault set on the proxy covers the connections that are open and those
//     that come; one set on a Conn covers that one. A direction is frozen when
//     either says so; the delays add.
//   - What one side closes is closed towards the other side after everything
//     sent before it: a request that was frozen reaches the server after Thaw
//     even if its client has gone.
//   - A trap fires once, on the first match after it was set.
//   - Close (and the end of the test) ends all connections and returns when every
//     goroutine has ended.
//
// # What it does not do
//
// It sits above TCP: it loses, reorders and corrupts nothing, and both sides
// still see their kernel acknowledge what they send. A peer that has vanished
// from the network needs a packet filter.
package faultconn
