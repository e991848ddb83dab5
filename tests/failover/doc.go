// Package failover promotes standbys under locks that are held: with the commit
// of the acquisition lost and with it kept, and what a primary that was replaced
// says; and it restarts servers. What it shows is in docs/loss-and-safety.md.
package failover
