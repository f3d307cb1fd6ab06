package wire

import (
	"crypto/sha256"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire/atysv1"
)

// PushedRun derives the run of a pushed window from what the window holds, so that the same
// profile pushed twice is one window, whoever pushes it, and two that begin at one time are
// two. The window and its stacks have been checked.
func PushedRun(m *atysv1.Window, stacks []profile.Hash) (run profile.Run) {
	w := proto.CloneOf(m)
	sum := sha256.New()
	add := func(stack uint32) {
		hash := stacks[stack]
		sum.Write(hash[:])
	}
	for _, stack := range w.GetRows().GetStack() {
		add(stack)
	}
	for i, peer := range w.GetRows().GetPeer() {
		if peer > 0 {
			add(peer - 1)
			w.Rows.Peer[i] = 1
		}
	}
	for _, e := range w.GetExemplars() {
		add(e.GetStack())
		e.Stack = 0
	}
	// What differs between requests that push the same: their tables, who sends them, and the
	// sender's clock.
	w.Series, w.Run, w.Numbered, w.ClockOffsetNs, w.ClockErrorNs = 0, nil, 0, 0, 0
	if w.Rows != nil {
		w.Rows.Stack = nil
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(w) // it has no map
	if err != nil {
		return profile.Run(m.GetRun()) // text that is not UTF-8, which no request has
	}
	sum.Write(data)
	copy(run[:], sum.Sum(nil))
	return run
}
