// Command gopher is a victim written in Go: it burns in methods, closures and generic functions, and logs the CPU time of each.
//
// Go has no time stamp counter to read between iterations, so its slices are
// counted iterations (about 100 us) with the thread's CPU clock read between
// them. The goroutine stays on one thread. The log has the format that
// ../src/victim.c writes.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const slot = 10 * int64(time.Millisecond)

// The sites, as in the log's first line.
const (
	other = iota
	inScan
	inArea
	inSquareArea
	inDiagonal
	inGeneric
	inClosure
	sites
)

var stacks = [sites]string{
	"",
	"main.main;main.run;main.scan",
	"main.main;main.run;main.circle.area",
	"main.main;main.run;main.square.area",
	"main.main;main.run;main.square.area;main.diagonal",
	"main.main;main.run;main.generic[...]",
	"main.main;main.run;main.run.func1",
}

// log adds up CPU time by slot and site.
type log struct {
	slots map[int64]*[sites]int64
	cpu   int64 // when last read
	began int64 // likewise, at first
}

func read(clock int32) int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		panic(err) // both clocks exist on every Linux
	}
	return t.Nano()
}

// charge gives the CPU time since it was last called to a site.
func (l *log) charge(site int) {
	at := read(unix.CLOCK_MONOTONIC) / slot * slot
	cpu := read(unix.CLOCK_THREAD_CPUTIME_ID)
	s := l.slots[at]
	if s == nil {
		s = new([sites]int64)
		l.slots[at] = s
	}
	s[site] += cpu - l.cpu
	l.cpu = cpu
}

// spin is inlined into its callers: the loop is theirs.
func spin(n int, salt uint64) uint64 {
	x := salt
	for range n {
		x = x*6364136223846793005 + salt
	}
	return x
}

//go:noinline
func scan(n int) uint64 { return spin(n, 11) }

//go:noinline
func diagonal(n int) uint64 { return spin(n, 13) }

//go:noinline
func generic[T any](n int, _ T) uint64 { return spin(n, 17) }

type shape interface{ area(l *log, n int) uint64 }

type circle struct{}

//go:noinline
func (circle) area(l *log, n int) uint64 {
	x := spin(n, 19)
	l.charge(inArea)
	return x
}

type square struct{}

//go:noinline
func (square) area(l *log, n int) uint64 {
	x := spin(n, 23)
	l.charge(inSquareArea)
	x += diagonal(n / 2)
	l.charge(inDiagonal)
	return x
}

//go:noinline
func run(l *log, rng *rand.Rand, n int, stop *atomic.Bool) (sum uint64) {
	shapes := []shape{circle{}, square{}}
	closure := func(n int) uint64 { return spin(n, 29) + sum }
	call := []func(int) uint64{closure} // so that it is not inlined
	for !stop.Load() {
		l.charge(other)
		n := n/2 + rng.IntN(n)
		switch u := rng.IntN(10); {
		case u < 4:
			sum += scan(n)
			l.charge(inScan)
		case u < 7:
			sum += shapes[u%2].area(l, n)
		case u < 8:
			sum += generic(n, u)
			l.charge(inGeneric)
		default:
			sum += call[0](n)
			l.charge(inClosure)
		}
	}
	return sum
}

func main() {
	seconds := 10.0
	if len(os.Args) > 1 {
		s, err := strconv.ParseFloat(os.Args[1], 64)
		if err != nil {
			fmt.Fprintf(os.Stderr, "gopher: %v\n", err)
			os.Exit(2)
		}
		seconds = s
	}
	runtime.LockOSThread()
	var stop atomic.Bool
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM, os.Interrupt)
	go func() {
		select {
		case <-terminated:
		case <-time.After(time.Duration(seconds * float64(time.Second))):
		}
		stop.Store(true)
	}()

	before := read(unix.CLOCK_THREAD_CPUTIME_ID)
	runtime.KeepAlive(scan(1 << 20))
	took := read(unix.CLOCK_THREAD_CPUTIME_ID) - before
	iterations := int((1 << 20) * int64(100*time.Microsecond) / max(took, 1))

	ready, err := json.Marshal(map[string]any{
		"victim": "gopher", "pid": os.Getpid(), "slot": slot,
		"start": read(unix.CLOCK_MONOTONIC), "stacks": stacks,
	})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", ready)
	l := &log{slots: map[int64]*[sites]int64{}, began: read(unix.CLOCK_THREAD_CPUTIME_ID)}
	l.cpu = l.began
	run(l, rand.New(rand.NewPCG(1, 2)), iterations, &stop)
	if err := l.print(); err != nil {
		fmt.Fprintf(os.Stderr, "gopher: %v\n", err)
		os.Exit(1)
	}
}

// print writes the slots in order, and the last line.
func (l *log) print() error {
	w := bufio.NewWriter(os.Stdout)
	burned := read(unix.CLOCK_THREAD_CPUTIME_ID) - l.began
	var first, last, sum int64
	for at := range l.slots {
		if first == 0 || at < first {
			first = at
		}
		last = max(last, at)
	}
	for at := first; at <= last && first > 0; at += slot {
		s := l.slots[at]
		if s == nil {
			continue
		}
		ns, err := json.Marshal(s)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "{\"at\":%d,\"ns\":%s}\n", at, ns)
		for _, n := range s {
			sum += n
		}
	}
	// Outside is all that this thread did not use while it burned: the runtime's own
	// threads collect garbage meanwhile, and wake up to look after it.
	end := read(unix.CLOCK_PROCESS_CPUTIME_ID)
	fmt.Fprintf(w, "{\"end\":%d,\"accounted\":%d,\"outside\":%d,\"cpu\":%d}\n",
		read(unix.CLOCK_MONOTONIC), sum, end-burned, end)
	return w.Flush()
}
