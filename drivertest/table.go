package drivertest

import (
	"slices"
	"strings"
)

// Cases returns the table of all cases, law by law.
func Cases() []Case {
	cases := slices.Concat(
		exclusionCases, exactCases, handleCases, tokenCases, trustCases, reentryCases, releaseCases,
		attemptCases, cancelCases, orderCases, wakingCases, sharingCases,
		lostCases, renewalCases, breakCases, valueCases, electionCases,
		errorCases, nameCases, inputCases, closingCases,
		processCases,
	)
	for i := range cases {
		cases[i].Law, _, _ = strings.Cut(cases[i].ID, ".")
	}
	return cases
}

// Laws are the laws in plain words, in their order.
var Laws = []struct{ ID, Name, Words string }{
	{"G1", "Exclusion", "At no time do two live grants of a name conflict: exclusive with anything, or permits over the limit."},
	{"G2", "Exact grant", "Only the exact grant, by owner and token, renews or releases. Late and repeated calls change nothing."},
	{"G3", "Fencing", "The tokens of a name only grow: over release, expiry, break, a deleted record and a restart of the store."},
	{"G4", "Trust", "A lease is trusted until its deadline by the holder's own clock, and that lies before the store can grant the name again."},
	{"G5", "Reentrancy", "Reentrant acquires count per owner; the last release frees; the token stays the same."},
	{"G6", "Release", "A release is safe to repeat, works after the caller's context ended, and goes on in the background if the store is away."},
	{"W1", "Attempts and bounds", "Try is exactly one attempt. A bounded wait ends at its bound. The TTL starts at the grant."},
	{"W2", "Cancelling", "When the context ends the call returns at once and leaves neither place nor grant, whatever was on its way."},
	{"W3", "Order", "Waiters are served in the order of their arrival. A dead one ahead costs a stated bound, a cancelled one nothing."},
	{"W4", "Waking", "One release wakes one waiter, or as many as can be granted. No wake-up is missed."},
	{"W5", "Within a process", "Goroutines of one process cost the store one waiter, and hand-over among them is bounded."},
	{"W6", "Writers and permits", "A waiting writer stops new readers. Requests for several permits are served strictly in order."},
	{"L1", "Loss", "The lease's context ends no later than its deadline, whatever the reason."},
	{"L2", "Renewal", "Renewal never takes back a lapsed lock, never outlives the release, survives transient errors, and one slow renewal delays no other."},
	{"L3", "Sessions", "What has expired in the store is never used again, and is made anew."},
	{"L4", "Recovery", "After an outage, restart or failover the client recovers by itself."},
	{"L5", "Break", "A person can revoke a hold with the expected token or owner and a reason. It is granted again when the holder has answered or run out; by force, at once."},
	{"V1", "Value", "The value of a hold is set by the exact grant alone, is there for all to read, and ends with the grant."},
	{"V2", "Elections", "At most one leads at a time, its work has stopped before the next term begins, and everybody can learn who it is."},
	{"E1", "Errors", "Every kind of failure has its own error, and the store's own error can be reached."},
	{"E2", "Names", "One name is one lock of one kind, the same from everywhere; two names are two locks."},
	{"E3", "Input", "Options and names are validated before the store is asked, every problem at once."},
	{"E4", "Close", "Close is safe at any time, ends all goroutines, and frees what is held, or leaves it by option."},
	{"E5", "Contexts", "The contexts of the acquire, the hold and the release never mix."},
}
