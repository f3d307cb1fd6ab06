package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/profile/selection"
	"atys.dev/atys/internal/profile/whose"
	"atys.dev/atys/internal/recorder"
	"atys.dev/atys/internal/render/live"
)

type topFlags struct {
	targetFlags
	codeFlags
	interval time.Duration
	window   time.Duration
	limit    int
	once     bool
	asJSON   bool
}

func topCommand() *cobra.Command {
	var f topFlags
	c := &cobra.Command{
		Use:   "top [flags]",
		Short: "Show live which functions and threads use the CPUs",
		Long: `top samples until you quit, and shows the functions of the last seconds: their own
share with its 95% interval, their share with what they call, and the CPUs they
use. A share whose interval is wider than itself, which could be noise, has a "?".
On a terminal it is full-screen ("?" lists the keys); elsewhere it prints a table
each interval.`,
		Example: `  atys top -p 1234
  atys top -a -F 199
  atys top -p 1234 --own
  atys top -a --once --json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.check(c); err != nil {
				return &usageError{err}
			}
			return top(c.Context(), f)
		},
	}
	f.targetFlags.add(c)
	f.codeFlags.add(c)
	flags := c.Flags()
	flags.DurationVarP(&f.interval, "interval", "i", time.Second, "time from one table to the next")
	flags.DurationVarP(&f.window, "window", "w", 10*time.Second, "how far back a table reaches")
	flags.IntVarP(&f.limit, "limit", "n", 20, "rows of a printed table")
	flags.BoolVar(&f.once, "once", false, "print one table and exit")
	flags.BoolVar(&f.asJSON, "json", false, "print one JSON object a line, each a whole table")
	return c
}

func top(ctx context.Context, f topFlags) error {
	if f.interval < 100*time.Millisecond || f.window < f.interval {
		return &usageError{fmt.Errorf("--interval %v and --window %v: --interval must be at least 100ms and no longer than --window", f.interval, f.window)}
	}
	if f.limit < 0 {
		return &usageError{fmt.Errorf("--limit %d: want 0 or more", f.limit)}
	}
	classifier, err := f.classifier()
	if err != nil {
		return err
	}
	targets, err := recorder.FindTargets(proc.FS{}, f.all, f.pids, f.name, f.cgroup)
	if err != nil {
		return &usageError{err}
	}
	dir, limit, err := f.cache.place()
	if err != nil {
		return err
	}
	r, err := recorder.Start(recorder.Setup{CacheDir: dir, CacheMax: limit, Rows: f.rows, Log: logger(f.verbose)}, recorder.Options{Targets: targets, Event: f.event, Frequency: f.frequency, Count: f.count,
		Threads: true})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var gone atomic.Bool
	go untilGone(ctx, targets.PIDs, func() {
		gone.Store(true)
		cancel()
	})
	t := &tables{recorder: r, classifier: classifier, flags: f, rolling: live.Rolling{Span: f.window}, usage: newUsage(time.Now)}
	busy := false
	if f.once || f.asJSON || !isTerminal(os.Stdout) || !isTerminal(os.Stdin) {
		err = t.print(ctx)
	} else {
		busy, err = t.show(ctx)
	}
	if gone.Load() {
		fmt.Fprintln(os.Stderr, "atys: the target has exited")
	}
	if busy { // it may take seconds to end what is under way, and the kernel ends all of it with us
		return err
	}
	return errors.Join(err, r.Close())
}

// tables makes a table of each window.
type tables struct {
	recorder   *recorder.Recorder
	classifier *whose.Classifier
	flags      topFlags
	rolling    live.Rolling
	usage      *usage
}

// next is the table of the window that ends now. To find names takes seconds where
// many programs are seen for the first time: unnamed, if not nil, is given the table
// as it is before.
func (t *tables) next(ctx context.Context, unnamed func(live.Table)) (live.Table, error) {
	w, err := t.recorder.Cut()
	if err != nil {
		return live.Table{}, err
	}
	if unnamed != nil {
		early := live.Rolling{Span: t.flags.window}
		unnamed(t.table(&early, byProcess(w)))
	}
	if w, err = t.recorder.Name(ctx, w); err != nil {
		return live.Table{}, err
	}
	return t.table(&t.rolling, w), nil
}

// byProcess is a window whose functions have no names yet: its processes stand for them.
func byProcess(w *profile.Window) *profile.Window {
	b := profile.NewBuilder(w.Head)
	for _, r := range w.Rows.All() {
		thread := w.Thread(r.Thread)
		name := cmp.Or(thread.Process, thread.Name, "process "+strconv.Itoa(thread.PID))
		stack := b.Stack([]profile.LocationID{b.Named(profile.Frame{Function: "[" + name + "]"})}, profile.EndComplete)
		b.Add(profile.Row{Stack: stack, Thread: b.Thread(thread), N: r.N, Values: r.Values, Squares: r.Squares})
	}
	return b.Window()
}

// table adds a window to those before it.
func (t *tables) table(rolling *live.Rolling, w *profile.Window) live.Table {
	w = t.classifier.Window(w)
	if t.flags.hideRuntime {
		w = selection.HideRuntime(w)
	}
	rolling.Add(live.NewDigest(w))
	table := rolling.Table()
	table.Functions = slices.DeleteFunc(table.Functions, t.flags.hidden)
	table.Head = t.head(table.Head)
	table.Head.Own = t.usage.cores()
	return table
}

// head fills in what of a table's head only the user's flags tell.
func (t *tables) head(h live.Head) live.Head {
	h.Target = t.target()
	if t.flags.count == 0 {
		h.Rate = t.flags.frequency
	}
	return h
}

// hidden tells which rows the user does not want to see. Their samples still
// count: shares stay those of the whole target.
func (w *codeFlags) hidden(f live.Function) bool {
	return w.languages.Kinds != 0 && !w.languages.Has(profile.ParseKind(f.Kind))
}

func (t *tables) target() string {
	switch f := t.flags; {
	case f.all:
		return "the machine"
	case f.cgroup != "":
		return "cgroup " + f.cgroup
	case f.name != "":
		return "processes named " + f.name
	default:
		return "process " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(f.pids)), ", "), "[]")
	}
}

// print writes a table each interval.
func (t *tables) print(ctx context.Context) error {
	ticker := time.NewTicker(t.flags.interval)
	defer ticker.Stop()
	for {
		ended := false
		select {
		case <-ctx.Done():
			ended = true
		case <-ticker.C:
		}
		table, err := t.next(ctx, nil)
		if err != nil {
			return err
		}
		if t.flags.own {
			table = live.OwnCode(table)
		} else {
			table = live.AllCode(table)
		}
		if t.flags.asJSON {
			err = json.NewEncoder(os.Stdout).Encode(table)
		} else {
			err = live.Text(os.Stdout, table, t.flags.limit)
		}
		if err != nil || t.flags.once || ended {
			return err
		}
		if !t.flags.asJSON {
			fmt.Println()
		}
	}
}

// firstTable is when the first table is made: who has just begun to look waits for it.
const firstTable = 250 * time.Millisecond

// made is a table that is ready to be shown, or why there is none.
type made struct {
	table   live.Table
	unnamed bool // another one comes with names
	err     error
}

// show runs the full-screen table until it is quit, or the target is gone. Tables are
// made beside it: to name what is new may take seconds, and keys are answered at once.
// busy tells that one is still being made.
func (t *tables) show(ctx context.Context) (busy bool, err error) {
	terminal, err := live.Open(os.Stdin, os.Stdout)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, terminal.Close()) }()
	screen := &live.Screen{Color: os.Getenv("NO_COLOR") == "", Own: t.flags.own}
	screen.Show(live.Table{Head: t.head(live.Head{})})
	ticker := time.NewTicker(min(t.flags.interval, firstTable))
	defer ticker.Stop()
	ready := make(chan made, 2) // a table without names, and one with: who makes them never waits
	first := true
	for {
		width, height := terminal.Size()
		if err := terminal.Draw(screen.Lines(width, height)); err != nil {
			return busy, err
		}
		select {
		case <-ctx.Done():
			return busy, nil
		case <-terminal.Resized():
		case key, ok := <-terminal.Keys():
			if !ok || screen.Press(key) {
				return busy, nil
			}
		case <-ticker.C:
			if busy {
				continue
			}
			busy = true
			go t.make(ctx, ready, first)
			if first {
				ticker.Reset(t.flags.interval)
			}
			first = false
		case m := <-ready:
			if m.err != nil {
				return false, m.err
			}
			busy = m.unnamed
			if !screen.Paused() {
				screen.Show(m.table)
			}
		}
	}
}

// make makes the next table, and the first one twice: at once, and with names.
func (t *tables) make(ctx context.Context, ready chan<- made, first bool) {
	var unnamed func(live.Table)
	if first {
		unnamed = func(table live.Table) {
			table.Head.Naming = true
			ready <- made{table: table, unnamed: true}
		}
	}
	table, err := t.next(ctx, unnamed)
	ready <- made{table: table, err: err}
}

// usage measures the CPU time of this very process.
type usage struct {
	now  func() time.Time
	at   time.Time
	used time.Duration
}

func newUsage(now func() time.Time) *usage {
	u := &usage{now: now}
	u.cores()
	return u
}

// cores is how many CPUs this process used since the last call.
func (u *usage) cores() float64 {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0
	}
	at, used := u.now(), time.Duration(r.Utime.Nano()+r.Stime.Nano())
	passed, spent := at.Sub(u.at), used-u.used
	u.at, u.used = at, used
	if passed <= 0 {
		return 0
	}
	return spent.Seconds() / passed.Seconds()
}
