package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/agent/budget"
	"atys.dev/atys/internal/proc/cputime"
	"atys.dev/atys/internal/proc/footprint"
)

// sight is what atys says of itself at a time.
type sight struct {
	at           time.Duration // since it began
	causes       map[string]float64
	decisions    map[string]float64
	rate, wanted float64
	over         float64
	capped       float64
	windows      float64 // that were sealed, and
	prompt       float64 // those sealed within promptly
	memory       int64
	against      time.Duration // CPU time of the other atys
}

// back reports whether the rate is the requested one again.
func (s sight) back() bool { return s.wanted > 0 && s.rate >= s.wanted && s.capped == 0 }

// seconds is the CPU time of all causes.
func (s sight) seconds() (sum float64) {
	for _, c := range s.causes {
		sum += c
	}
	return sum
}

// watch asks atys how it fares.
type watch struct {
	address string
	began   time.Time
	process int // of the atys that is measured
	seen    []sight
	loaded  int // of these, the first with the load
	calm    int // and without
	turns   int64
	against int // process of another atys; 0: there is none
}

// until asks for so long, or until what is seen is enough.
func (w *watch) until(ctx context.Context, d time.Duration, enough func(sight) bool) error {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := harness.Sleep(ctx, min(*every, time.Until(end))); err != nil {
			return err
		}
		s, err := w.ask(ctx)
		if err != nil {
			return err
		}
		w.seen = append(w.seen, s)
		if enough != nil && enough(s) {
			return nil
		}
	}
	return nil
}

func (w *watch) ask(ctx context.Context) (sight, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.address+"/metrics", nil)
	if err != nil {
		return sight{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return sight{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return sight{}, fmt.Errorf("ask for metrics: %s", response.Status)
	}
	s := read(response.Body)
	s.at = time.Since(w.began)
	held, err := footprint.Of(w.process)
	if err != nil {
		return s, err
	}
	s.memory = held.Memory()
	if w.against != 0 {
		s.against, err = footprint.CPU(w.against)
	}
	return s, err
}

// promptly is the bucket of windows that are not late: those of "atys up" are 10 s long.
const promptly = "10"

var (
	line  = regexp.MustCompile(`^(atys_agent_\w+)(?:\{(.*)\})? (\S+)$`)
	label = regexp.MustCompile(`(?:cause|knob|le)="([^"]*)"`)
)

func read(metrics io.Reader) sight {
	s := sight{causes: map[string]float64{}, decisions: map[string]float64{}}
	for lines := bufio.NewScanner(metrics); lines.Scan(); {
		m := line.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			continue
		}
		of := ""
		if l := label.FindStringSubmatch(m[2]); l != nil {
			of = l[1]
		}
		switch m[1] {
		case "atys_agent_cause_cpu_seconds_total":
			s.causes[of] = value
		case "atys_agent_decisions_total":
			s.decisions[of] = value
		case "atys_agent_frequency_hertz":
			s.rate = value
		case "atys_agent_wanted_frequency_hertz":
			s.wanted = value
		case "atys_agent_frequency_cap_hertz":
			s.capped = value
		case "atys_agent_over_budget":
			s.over = value
		case "atys_agent_window_delay_seconds_count":
			s.windows = value
		case "atys_agent_window_delay_seconds_bucket":
			if of == promptly {
				s.prompt = value
			}
		}
	}
	return s
}

// least is the rate that none may be below.
const least = 5

func (w *watch) report() error {
	var t harness.Table
	head := []string{"after", "all"}
	for _, c := range cputime.Causes() {
		head = append(head, string(c))
	}
	t.Row(append(head, "rate", "memory")...)
	before := sight{}
	const rows = 12
	step := max(1, len(w.seen)/rows)
	for i, s := range w.seen {
		if i%step != step-1 && i != w.calm-1 && i != len(w.seen)-1 {
			continue
		}
		t.Row(append(shares(before, s), fmt.Sprintf("%.3g of %.3g Hz", s.rate, s.wanted), fmt.Sprintf("%.0f MB", float64(s.memory)/1e6))...)
		before = s
	}
	if err := t.Print(); err != nil {
		return err
	}
	return w.summarize()
}

// summarize prints what the whole load came to, and checks the rate.
func (w *watch) summarize() error {
	start, loaded, last := sight{}, w.seen[w.calm-1], w.seen[len(w.seen)-1]
	if w.loaded > 0 {
		start = w.seen[w.loaded-1]
	}
	lowest := loaded.wanted
	for _, s := range w.seen {
		if s.wanted > 0 { // it has begun
			lowest = min(lowest, s.rate)
		}
	}
	seconds := (loaded.at - start.at).Seconds()
	used := loaded.seconds() - start.seconds()
	fmt.Printf("\nover the %v of load, %d turns: %.2f%% of a core, of it others %.0f%%; the rate was %.3g Hz at least, of %.3g; after the load it was back within %v: %v\n",
		(loaded.at - start.at).Round(time.Second), w.turns, 100*used/seconds, 100*(loaded.causes["other"]-start.causes["other"])/used, lowest, loaded.wanted, (last.at - loaded.at).Round(time.Second), last.back())
	if w.against != 0 {
		fmt.Printf("the other atys, its interrupts and BPF programs not counted: %.2f%% of a core\n", 100*(loaded.against-start.against).Seconds()/seconds)
	}
	fmt.Printf("%.0f windows, %.0f of them late (more than %s s)\n", last.windows, last.windows-last.prompt, promptly)
	if early, later := w.peaks(); later > 0 {
		fmt.Printf("memory: at most %.0f MB in the first %v of load, %.0f MB later\n", float64(early)/1e6, warming, float64(later)/1e6)
	}
	fmt.Print("decisions:")
	for _, k := range budget.Knobs() {
		if n := last.decisions[string(k)]; n > 0 {
			fmt.Printf(" %s %g", k, n)
		}
	}
	fmt.Println()
	if lowest < min(least, loaded.wanted) {
		return fmt.Errorf("the rate fell to %.3g Hz", lowest)
	}
	return nil
}

// warming is how long memory may grow.
const warming = 10 * time.Minute

// peaks returns the most memory while warming and after.
func (w *watch) peaks() (early, later int64) {
	for _, s := range w.seen[w.loaded:] {
		if s.at < w.seen[w.loaded].at+warming {
			early = max(early, s.memory)
		} else {
			later = max(later, s.memory)
		}
	}
	return early, later
}

// shares are what each cause took of a core between two times.
func shares(from, to sight) []string {
	seconds := (to.at - from.at).Seconds()
	percent := func(spent float64) string { return fmt.Sprintf("%.2f%%", 100*spent/seconds) }
	row := []string{to.at.Round(time.Second).String(), percent(to.seconds() - from.seconds())}
	for _, c := range cputime.Causes() {
		row = append(row, percent(to.causes[string(c)]-from.causes[string(c)]))
	}
	return row
}
