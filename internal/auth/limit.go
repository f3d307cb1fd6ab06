package auth

import (
	"sync"
	"time"
)

// Limit bounds how often each of those who ask may: Rate times a second in the
// long run, Burst times at once. Who asks is an identity at an address, so that
// agents that share a token do not pay for each other. The zero Rate allows all.
type Limit struct {
	Rate, Burst float64
	Now         func() time.Time

	mu   sync.Mutex // guards left
	left map[asker]*allowance
}

type asker struct {
	who     Identity
	machine string
}

// allowance is how many requests somebody has left, as of a time.
type allowance struct {
	left float64
	at   time.Time
}

// maxAskers bounds what is remembered; who was forgotten begins anew.
const maxAskers = 50_000

func (l *Limit) allow(who Identity, remote string) bool {
	if l == nil || l.Rate <= 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, of := l.Now(), asker{who, machine(remote)}
	a := l.left[of]
	if a == nil {
		if l.left == nil || len(l.left) >= maxAskers {
			l.forget(now)
		}
		a = &allowance{l.Burst, now}
		l.left[of] = a
	}
	a.left = min(l.Burst, a.left+l.Rate*max(now.Sub(a.at), 0).Seconds())
	a.at = now
	if a.left < 1 {
		return false
	}
	a.left--
	return true
}

// forget drops those who have all of their allowance again; all, where too
// many have not. The lock is held.
func (l *Limit) forget(now time.Time) {
	for of, a := range l.left {
		if a.left+l.Rate*now.Sub(a.at).Seconds() >= l.Burst {
			delete(l.left, of)
		}
	}
	if l.left == nil || len(l.left) >= maxAskers {
		l.left = map[asker]*allowance{}
	}
}
