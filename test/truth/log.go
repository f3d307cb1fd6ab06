// Package truth compares profiles of victims with what the victims say they burned.
//
// The flow:
//
//  1. Read takes a victim's log: CPU time per site in slots of 10 ms.
//  2. Observe takes what a Window saw, per function; Cut takes a Window whose
//     samples kept their times apart into many.
//  3. Score.Add asks the log for the shares in the same stretch of time and
//     counts how many intervals contain them, and how wide they are.
package truth

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// Other is the function of time that a victim spent outside its sites.
const Other = ""

// Log is what a victim says. Instants are of CLOCK_MONOTONIC, in ns.
type Log struct {
	Victim     string
	PID        int
	TID        int // the thread that burns; 0: any of the process
	Start, End int64
	Slot       int64
	Sites      []Site
	CPU        time.Duration // of the whole process, as the kernel has it

	slots []slotLine // by time
}

// Site is a place where a victim burns: the functions on its stack, root first.
type Site struct{ Stack []string }

// Function is the one that burns.
func (s Site) Function() string {
	if len(s.Stack) == 0 {
		return Other
	}
	return s.Stack[len(s.Stack)-1]
}

type slotLine struct {
	At int64
	NS []int64
}

// lineLimit bounds a line of a log: the deepest stacks take 5 kB.
const lineLimit = 1 << 20

// maxInstant bounds instants and lengths (146 years of uptime), so that sums of
// two cannot overflow.
const maxInstant = math.MaxInt64 / 2

// Read parses a victim's log.
func Read(r io.Reader) (*Log, error) {
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, lineLimit)
	l := &Log{}
	for n := 1; scan.Scan(); n++ {
		if err := l.line(n, scan.Bytes()); err != nil {
			return nil, fmt.Errorf("read log line %d: %w", n, err)
		}
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	if l.Sites == nil || l.End == 0 {
		return nil, fmt.Errorf("read log: it is cut short")
	}
	return l, nil
}

func (l *Log) line(n int, text []byte) error {
	if n == 1 {
		var head struct {
			Victim      string
			PID, TID    int
			Slot, Start int64
			Stacks      []string
		}
		if err := json.Unmarshal(text, &head); err != nil {
			return err
		}
		if head.Slot <= 0 || head.Slot > maxInstant || len(head.Stacks) == 0 {
			return fmt.Errorf("no slots or no stacks")
		}
		l.Victim, l.PID, l.TID, l.Slot, l.Start = head.Victim, head.PID, head.TID, head.Slot, head.Start
		for _, s := range head.Stacks {
			var site Site
			if s != "" {
				site.Stack = strings.Split(s, ";")
			}
			l.Sites = append(l.Sites, site)
		}
		return nil
	}
	var line struct {
		slotLine
		End, CPU int64
	}
	if err := json.Unmarshal(text, &line); err != nil {
		return err
	}
	if line.NS == nil {
		l.End, l.CPU = line.End, time.Duration(line.CPU)
		return nil
	}
	if len(line.NS) != len(l.Sites) {
		return fmt.Errorf("%d times for %d sites", len(line.NS), len(l.Sites))
	}
	if line.At < 0 || line.At > maxInstant || slices.Min(line.NS) < 0 {
		return fmt.Errorf("slot %d: not a time", line.At)
	}
	if k := len(l.slots); k > 0 && line.At < l.slots[k-1].At+l.Slot {
		return fmt.Errorf("slot %d comes after %d", line.At, l.slots[k-1].At)
	}
	l.slots = append(l.slots, line.slotLine)
	return nil
}

// Renamed is the same log with the functions that burn called otherwise: those
// that get one name become one.
func (l *Log) Renamed(name func(function string) string) *Log {
	out := *l
	out.Sites = make([]Site, len(l.Sites))
	for i, s := range l.Sites {
		if out.Sites[i].Stack = slices.Clone(s.Stack); len(s.Stack) > 0 {
			out.Sites[i].Stack[len(s.Stack)-1] = name(s.Function())
		}
	}
	return &out
}

// sites sums the CPU time of each site between two instants; slots that lie
// across an end count in proportion.
func (l *Log) sites(from, to int64) []float64 {
	sums := make([]float64, len(l.Sites))
	first, _ := slices.BinarySearchFunc(l.slots, from-l.Slot+1, func(s slotLine, at int64) int {
		return int(min(max(s.At-at, -1), 1))
	})
	for _, s := range l.slots[first:] {
		if s.At >= to {
			break
		}
		part := float64(min(to, s.At+l.Slot)-max(from, s.At)) / float64(l.Slot)
		for i, ns := range s.NS {
			sums[i] += part * float64(ns)
		}
	}
	return sums
}

// Self gives the CPU time that each function burned itself between two
// instants, Other included.
func (l *Log) Self(from, to int64) map[string]float64 {
	out := map[string]float64{}
	for i, ns := range l.sites(from, to) {
		out[l.Sites[i].Function()] += ns
	}
	return out
}

// Inclusive gives the CPU time of each function and what it called between two
// instants, a function that recurs counted once; Other has no callers.
func (l *Log) Inclusive(from, to int64) map[string]float64 {
	out := map[string]float64{}
	for i, ns := range l.sites(from, to) {
		stack := l.Sites[i].Stack
		for at, f := range stack {
			if !slices.Contains(stack[:at], f) {
				out[f] += ns
			}
		}
		if len(stack) == 0 {
			out[Other] += ns
		}
	}
	return out
}
