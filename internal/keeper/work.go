package keeper

// spareWorkers is how many goroutines are kept for the next call. A new one for
// each would grow its stack anew each time, which costs about as much as all else
// that an acquisition does outside of the engine.
const spareWorkers = 4

// spawn runs fn on a goroutine that Close joins; false when closing is over
// and fn was not run.
func (k *Keeper) spawn(fn func()) bool {
	// The WaitGroup may be waited on only once nothing can be added any more,
	// and halt is what says so; both are under mu for that reason. So is handing
	// over to a worker: one that sees stop has been given nothing.
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stop.Err() != nil {
		return false
	}
	select {
	case k.jobs <- fn:
	default:
		k.work.Add(1)
		go k.worker(fn)
	}
	return true
}

// during runs fn on the caller's goroutine, with Close waiting for it; false when
// closing is over and fn was not run.
func (k *Keeper) during(fn func()) bool {
	k.mu.Lock()
	if k.stop.Err() != nil {
		k.mu.Unlock()
		return false
	}
	k.work.Add(1)
	k.mu.Unlock()
	defer k.work.Done()
	fn()
	return true
}

// worker runs one function after another, as long as there are not enough
// others that wait for the next.
func (k *Keeper) worker(fn func()) {
	defer k.work.Done()
	for {
		fn()
		if k.spare.Add(1) > spareWorkers {
			k.spare.Add(-1)
			return
		}
		select {
		case fn = <-k.jobs:
			k.spare.Add(-1)
		case <-k.stop.Done():
			return
		}
	}
}
