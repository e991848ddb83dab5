// Package engine is what a lock engine implements, and the plain data that
// crosses the seam between engines and the client.
//
// Users never call it: they hold a *pgmutex.Client, which carries everything
// that all engines share (the renewal loop, the trust window, loss signals,
// waiting, naming, hooks). An engine is only a set of single-shot operations on
// a store, each over a batch, and knows nothing of goroutines that wait or of
// contexts that end.
//
// # Stability
//
// Engine and the optional interfaces may change in any release, so implement
// them only if you can follow. The types that package pgmutex re-exports as
// aliases (Status, State, LossReason, PastHold) follow its stability instead.
//
// # Zero values are the safe ones
//
// The zero Outcome is Unknown and the zero Health is Unclear: an engine that
// forgets to fill in an answer can neither grant a lock nor take one away.
package engine
