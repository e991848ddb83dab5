package local

import "time"

// A machine is what the engine asks the host for; tests put another in place.
type machine struct {
	boot  func() string        // names this boot of this machine, "" where it cannot be told
	clock func() time.Duration // since boot, time asleep included
	wall  func() time.Time     // for showing only
	check func(path string) error
}

func thisMachine() machine {
	return machine{boot: bootID, clock: sinceBoot, wall: time.Now, check: checkFileSystem}
}

// A moment is one reading of the clocks. All of a transaction's times come from
// one that is taken when the transaction has begun: one taken before could be as
// old as the wait for the file.
type moment struct {
	boot string
	at   time.Duration
	wall time.Time
}

func (p *process) now() moment {
	return moment{boot: p.boot, at: p.host.clock(), wall: p.host.wall()}
}
