package model

// bug is a way to get the protocol wrong.
type bug uint8

const (
	noBug bug = iota

	// Trust.
	grantFromReply // trust in a grant counts from its answer
	renewFromReply // so does that in a renewal
	noFence        // a hold ends only when its client is told
	fenceWaits     // a hold does not end while a heartbeat is on its way
	lateGrant      // a grant that comes after its trust is used all the same
	lateRenewal    // a confirmation revives what has ended

	// Judging a holder.
	ownStale         // by the contender's StaleAfter, not the holder's
	takeAny          // the heartbeat that was watched is not compared with the row's
	takeUnseen       // the row that is written need not be the one that was read
	watchFromRequest // a waiter counts from its request, not from the answer
	believeAge       // a waiter believes the server about the age of every heartbeat
	believeLook      // and bounds it by nothing but its previous look
	negativeAge      // a heartbeat from the server's future is waited for

	// Statements.
	removeByName  // a release removes whatever row there is
	renewByName   // a heartbeat is written into whatever row there is
	renewInserts  // a heartbeat makes its row again
	unknownIsBusy // an attempt without an answer counts as "held by others"
	absentSettles // a ghost is forgotten when it is not found once
	plainGuard    // a guard locks nothing
	heldForGuard  // Held is asked instead of a guard
	earlyToken    // the token is drawn when the row is read
)

// plain is the protocol with the least that can happen: 1/3 of StaleAfter is a
// tick.
func plain(name string, change ...func(*setup)) setup {
	m := setup{name: name, stale: [clients]int8{3, 3}, trust: [clients]int8{2, 2}, alike: true, calm: 3, check: everything}
	for _, f := range change {
		f(&m)
	}
	return m
}

// sound lists the setups in which every property has to hold.
func sound() []setup {
	return []setup{
		plain("requests that are late or lost, and crashes", func(m *setup) { m.strays, m.crashes = true, true }),
		plain("requests and removals that are late or lost", func(m *setup) { m.strays, m.removals = true, true }),
		plain("answers that are late", func(m *setup) { m.slow, m.patient, m.crashes = true, true, true }),
		plain("statements that read first and write later", func(m *setup) { m.split, m.patient = true, true }),
		plain("clocks of clients and server that err by less than the margin", func(m *setup) {
			m.slips, m.leaps, m.steps = true, true, []int8{+1, -1}
		}),
		plain("steps of the server's clock of any size while others watch", func(m *setup) {
			m.unlooked, m.calm, m.steps = true, 0, []int8{+3}
		}),
		plain("different times", func(m *setup) {
			m.stale, m.trust, m.alike = [clients]int8{6, 3}, [clients]int8{4, 2}, false
		}),
		plain("a process of the Python package", func(m *setup) {
			m.stale, m.trust, m.python, m.alike = [clients]int8{6, 3}, [clients]int8{2, 1}, 3, false
			m.check &^= belief // of a Python process, which does not know when it has to stop
		}),
		plain("guards, whatever the server's clock does", func(m *setup) {
			m.guards, m.steps, m.calm = true, []int8{+3}, 0
			m.check = final | own | clean | effect | order
		}),
		plain("a database that loses the row", func(m *setup) {
			m.forgets, m.crashes = true, true
			m.check = final | own | clean | order
		}),
	}
}

// broken lists what breaks a promise, and which.
func broken() []setup {
	with := func(name string, b bug, breaks property, change ...func(*setup)) setup {
		m := plain(name, change...)
		m.bug, m.check = b, breaks
		return m
	}
	late := func(m *setup) { m.patient = true }
	strays := func(m *setup) { m.strays, m.removals = true, true }
	anyStep := func(m *setup) { m.unlooked, m.calm, m.steps = true, 0, []int8{+3} }
	guards := func(m *setup) { m.guards = true }
	return []setup{
		with("trust in a grant counts from the reply", grantFromReply, belief, late),
		with("trust in a renewal counts from the reply", renewFromReply, belief, func(m *setup) {
			// Finer ticks: the confirmation has to come before the old deadline.
			m.stale, m.trust = [clients]int8{6, 6}, [clients]int8{4, 4}
		}),
		with("no local fence", noFence, belief),
		with("fence > stale", noBug, belief, func(m *setup) { m.trust = [clients]int8{4, 4} }),
		with("fence only when the database's call returns", fenceWaits, belief),
		with("a grant after its deadline is used", lateGrant, belief, late),
		with("a confirmation after the deadline revives", lateRenewal, final),
		with("own stale instead of the row's", ownStale, belief, func(m *setup) {
			m.stale, m.trust, m.alike = [clients]int8{6, 3}, [clients]int8{4, 2}, false
		}),
		with("takeover by a heartbeat that is not compared", takeAny, belief),
		with("takeover of a row that has changed since it was read", takeUnseen, belief, func(m *setup) { m.split = true }),
		with("a waiter counts from its request", watchFromRequest, belief, func(m *setup) { m.slow, m.patient = true, true }),
		with("a waiter believes every age that it is told", believeAge, belief, anyStep),
		with("a waiter believes an age as long as the look before is past", believeLook, belief, anyStep),
		with("a heartbeat from the future is waited for", negativeAge, live, func(m *setup) { m.steps = []int8{-2} }),
		with("release by name", removeByName, belief, strays),
		with("renewal by name", renewByName, own, strays),
		with("renewal as upsert", renewInserts, clean, strays),
		with("unknown treated as busy", unknownIsBusy, clean, strays),
		with("a disown that stops at 0 rows", absentSettles, clean, strays),
		with("a guard that locks nothing", plainGuard, effect, guards),
		with("token drawn before the row is there", earlyToken, order, func(m *setup) { m.split = true }),
	}
}

// needed lists what is assumed, each left out once.
func needed() []setup {
	without := func(name string, breaks property, change func(*setup)) setup {
		m := plain(name, change)
		m.check = breaks
		return m
	}
	return []setup{
		without("the server's clock steps by more than the margin", belief, func(m *setup) { m.steps = []int8{+2} }),
		without("it steps by the margin twice within StaleAfter", belief, func(m *setup) { m.steps, m.calm = []int8{+1}, 1 }),
		without("a client's clock stands still while its host sleeps", belief, func(m *setup) { m.slips, m.calm = true, 0 }),
		without("a waiter's clock runs far ahead", belief, func(m *setup) { m.leaps, m.calm = true, 0 }),
		without("the database loses a commit", belief, func(m *setup) { m.forgets = true }),
		without("a process has a shorter threshold than was agreed", standing, func(m *setup) {
			m.stale, m.trust, m.python, m.alike = [clients]int8{6, 3}, [clients]int8{4, 1}, 3, false
		}),
		without("frozen between Held and the write", effect, func(m *setup) { m.guards, m.bug = true, heldForGuard }),
	}
}
