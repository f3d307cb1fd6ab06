package auth

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"time"
)

// AtOnce has at most so many requests be answered at once. The others wait for
// as long as who asks does.
//
// They are answered by goroutines that stay for a while: to keep a window takes a
// deep stack, and each of a thousand connections would have one, or lose it and
// grow it again with each request.
func AtOnce(most int, next http.Handler) http.Handler {
	a := &atOnce{next: next, waiting: make(chan *asked), slots: make(chan struct{}, most)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := &asked{w: w, r: r, answered: make(chan struct{})}
		if !a.pass(q) {
			GaveUp(w)
			return
		}
		<-q.answered
		if q.panicked != nil {
			panic(q.panicked)
		}
	})
}

type atOnce struct {
	next    http.Handler
	waiting chan *asked   // for one who answers and is free
	slots   chan struct{} // of those who answer
}

// asked is a request on its way to who answers.
type asked struct {
	w        http.ResponseWriter
	r        *http.Request
	answered chan struct{} // closed when it is
	panicked any
}

// pass gives a request to one who answers, or makes one; false if nobody waits any
// more.
func (a *atOnce) pass(q *asked) bool {
	select {
	case a.waiting <- q:
		return true
	default:
	}
	select {
	case a.waiting <- q:
		return true
	case a.slots <- struct{}{}:
		go a.work(q)
		return true
	case <-q.r.Context().Done():
		return false
	}
}

// idle is how long one who answers stays without anything to do: agents send each
// ten seconds.
const idle = 15 * time.Second

func (a *atOnce) work(q *asked) {
	defer func() { <-a.slots }()
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		a.answer(q)
		timer.Reset(idle)
		select {
		case q = <-a.waiting:
		case <-timer.C:
			return
		}
	}
}

// answer answers; a panic is that of who waits for it.
func (a *atOnce) answer(q *asked) {
	defer close(q.answered)
	defer func() {
		if q.panicked = recover(); q.panicked != nil && q.panicked != http.ErrAbortHandler {
			q.panicked = fmt.Sprintf("%v\n%s", q.panicked, debug.Stack())
		}
	}()
	a.next.ServeHTTP(q.w, q.r)
}
