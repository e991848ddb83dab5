// Package gocron lets schedulers of gocron v2 in several processes share their
// jobs. There are two ways, for one scheduler choose one:
//
//   - A [Locker], for gocron.WithDistributedLocker: each run of each job takes
//     the job's lock, so that the work is spread.
//   - An [Elector], for gocron.WithDistributedElector: one process of all runs
//     every job, until it is gone.
//
// gocron has no way to be told of a loss: a run goes on when its lock is lost, or
// when its process no longer leads. A job that must then stop is better given to
// the scheduler as the function that Client.Singleton makes, without a locker:
// the context that it works under ends with the hold.
package gocron
