package auth

import (
	"net/http"
	"time"
)

const (
	// patience is how long who is answered may take for the next part of an answer.
	patience = time.Minute
	// answerPart is how many bytes are one: who reads so slowly is taken to be gone.
	answerPart = 64 << 10
)

// Patient has answers be given up that nobody reads: until then each takes memory,
// and a backup a snapshot of the store. One that is read goes on, however long it
// takes, and so does one that has nothing to say for long.
func Patient(next http.Handler) http.Handler { return patientFor(patience, next) }

func patientFor(patience time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &patient{ResponseWriter: w, patience: patience, multiplexed: r.ProtoMajor > 1}
		next.ServeHTTP(p, r)
		p.hurry() // the rest is sent once this returns
	})
}

// patient writes as long as somebody reads.
type patient struct {
	http.ResponseWriter
	patience    time.Duration
	multiplexed bool
}

// Unwrap is for http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *patient) Write(data []byte) (n int, err error) {
	defer p.relax()
	for {
		p.hurry()
		wrote, err := p.ResponseWriter.Write(data[n:min(n+answerPart, len(data))])
		n += wrote
		if err != nil || n == len(data) {
			return n, err
		}
	}
}

// Flush sends what there is; connect wants it of whoever streams.
func (p *patient) Flush() { _ = p.FlushError() } // the next write tells as well

// FlushError is Flush for http.ResponseController.
func (p *patient) FlushError() error {
	defer p.relax()
	p.hurry()
	return http.NewResponseController(p.ResponseWriter).Flush()
}

// hurry bounds how long what is written next may take.
func (p *patient) hurry() { p.until(time.Now().Add(p.patience)) }

// relax has nothing be due while nothing is written. In HTTP/2 a stream ends when
// its time is over, whether it writes or not; in HTTP/1 only a write does, and
// net/http takes the bound off once all is sent.
func (p *patient) relax() {
	if p.multiplexed {
		p.until(time.Time{})
	}
}

func (p *patient) until(at time.Time) {
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(at) // who cannot has no connection that waits
}
