package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/auth"
)

// load is many agents in a process of its own, so that what they take of the
// machine is told apart from the server's.
type load struct {
	server     string
	token      func() (string, error)
	prometheus int // the port at which each agent shows its functions; 0: none
	from       time.Time
	until      time.Time
	counts     counts

	mu     sync.Mutex // guards all below
	agents map[string]*agent
}

// counts are what the agents saw.
type counts struct {
	mu sync.Mutex

	Explained, Reconnects, Unsent int
	Bytes                         int64          // of requests with windows
	Windows                       map[string]int // that the server said it has, by instance
	Failures                      map[string]int
	Minutes                       [][]time.Duration // from sending to having it, by the minute in which it was sent
	CPU                           time.Duration
}

func (c *counts) add(change func(*counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// took notes a window, how long after the beginning it was sent, and how long that took.
func (c *counts) took(instance string, at, d time.Duration) {
	c.add(func(c *counts) {
		c.Windows[instance]++
		minute := max(int(at/time.Minute), 0)
		for len(c.Minutes) <= minute {
			c.Minutes = append(c.Minutes, nil)
		}
		c.Minutes[minute] = append(c.Minutes[minute], d)
	})
}

func (c *counts) failed(err error) { c.add(func(c *counts) { c.Failures[err.Error()]++ }) }

func (c *counts) windows() (n int) {
	for _, one := range c.Windows {
		n += one
	}
	return n
}

// all is how long each window took.
func (c *counts) all() []time.Duration { return slices.Concat(c.Minutes...) }

// quantile is one of how long windows took.
func quantile(took []time.Duration, q float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(int(q*float64(len(took))), len(took)-1)]
}

// meanLife is how long an instance lives before another takes its place.
const meanLife = 2 * time.Hour

// drive is the process of the agents: it prints that they begin, once their windows
// are made, and in the end what they saw.
func drive(ctx context.Context, server, token string, instances, port int, length time.Duration) error {
	l := &load{server: server, token: func() (string, error) { return auth.ReadSecret(token) }, prometheus: port,
		counts: counts{Windows: map[string]int{}, Failures: map[string]int{}}, agents: map[string]*agent{}}
	all, err := newServices()
	if err != nil {
		return err
	}
	l.from = time.Now().Truncate(windowLength).Add(windowLength)
	l.until = l.from.Add(length)
	if port != 0 {
		stop, err := l.expose(port)
		if err != nil {
			return err
		}
		defer stop()
	}
	began, err := ownCPU()
	if err != nil {
		return err
	}
	if _, err := fmt.Println("ready"); err != nil {
		return err
	}
	var lives sync.WaitGroup
	number := 0
	for i, n := range shares(instances) {
		for range n {
			place := number
			number++
			lives.Go(func() { l.place(ctx, place, all[i]) })
		}
	}
	lives.Wait()
	if instances == 0 { // the server is watched all the same
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(l.until)):
		}
	}
	ended, err := ownCPU()
	l.counts.CPU = ended - began
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(&l.counts)
}

// place has instances follow each other in one place until the end. Half way
// those of the first service are replaced by ones of its next build.
func (l *load) place(ctx context.Context, number int, s *service) {
	length := time.Until(l.until)
	deploy := time.Now().Add(length/2 + time.Duration(rand.Int64N(int64(time.Minute))))
	for life, build := 0, 0; time.Now().Before(l.until) && ctx.Err() == nil; life++ {
		a, err := newAgent(l, number, life, s, s.builds[build])
		if err != nil {
			l.counts.failed(err)
			return
		}
		end := time.Now().Add(time.Duration(rand.ExpFloat64() * float64(meanLife)))
		if build+1 < len(s.builds) && deploy.Before(end) {
			end = deploy
			build++
		}
		l.there(number, a)
		living, cancel := context.WithDeadline(ctx, slices.MinFunc([]time.Time{end, l.until}, time.Time.Compare))
		a.live(living)
		cancel()
	}
}

func (l *load) there(number int, a *agent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.agents[address(number).String()] = a
}

// metricsAddress is where an agent shows its functions.
func (l *load) metricsAddress(number int) string {
	if l.prometheus == 0 {
		return ""
	}
	return net.JoinHostPort(address(number).String(), strconv.Itoa(l.prometheus))
}

// expose answers Prometheus for all agents: each has an address of its own.
func (l *load) expose(port int) (stop func(), err error) {
	listener, err := net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", port))
	if err != nil {
		return nil, err
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if !ok {
			http.NotFound(w, r)
			return
		}
		l.mu.Lock()
		a := l.agents[at.IP.String()]
		l.mu.Unlock()
		if a == nil {
			http.NotFound(w, r)
			return
		}
		promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})}
	go func() { _ = s.Serve(listener) }() // it ends when it is closed
	return func() { _ = s.Close() }, nil
}

// ownCPU is what this process has used.
func ownCPU() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// commonest lists failures, the most frequent first.
func (c *counts) commonest() []string {
	return slices.SortedFunc(maps.Keys(c.Failures), func(a, b string) int { return cmp.Compare(c.Failures[b], c.Failures[a]) })
}
