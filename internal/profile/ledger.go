package profile

import "time"

// How long windows of a target are added up: less says little, and what is certain
// after so long only is not much.
const (
	ledgerLeast = time.Minute
	ledgerMost  = 10 * time.Minute
)

// Ledger adds windows of one target up until it is certain that time is missing,
// which no single one of them may be able to show. The zero value is ready to use.
type Ledger struct {
	head Head
	sum  Sum
	over time.Duration
}

// Add adds a window, the next of its target. Where it has become certain that time
// was not sampled, the window gets the loss, of all windows since the last that got one.
func (l *Ledger) Add(w *Window) Balance {
	if l.over == 0 {
		l.head = Head{Types: w.Types[:min(len(w.Types), 1)]}
	}
	l.sum.Add(w.Rows.Total(0))
	l.head.Exact.Add(w.Exact)
	for _, loss := range w.Losses {
		switch loss.Reason {
		case LossUnsampled, LossDropped, LossExact, LossTargets:
			l.head.AddLoss(loss)
		}
	}
	l.over += w.Duration
	b := l.head.Balance(l.sum)
	if l.over < ledgerLeast {
		return b
	}
	loss := b.Loss()
	w.AddLoss(loss)
	if loss.Value > 0 || l.over >= ledgerMost {
		*l = Ledger{}
	}
	return b
}
