package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"atys.dev/atys/internal/calibrate"
	"atys.dev/atys/internal/freq"
	"atys.dev/atys/internal/prune"
	"atys.dev/atys/internal/render"
)

// writeWords tells what was found.
func (c calibrated) writeWords(to io.Writer) error {
	w := bufio.NewWriter(to)
	c.writeHead(w)
	fmt.Fprint(w, "\nPruning\n\n")
	if err := c.writePruning(w); err != nil {
		return err
	}
	fmt.Fprint(w, "\nHow much windows diverge from the ones before, in nats\n\n")
	if err := c.writeDivergences(w); err != nil {
		return err
	}
	fmt.Fprint(w, "\nRates: what they cost, and by how much shares are off\n\n")
	if err := c.writeRates(w); err != nil {
		return err
	}
	if c.Refused != nil {
		return w.Flush() // why, is the error
	}
	fmt.Fprint(w, "\nProposed, to be applied by \"atys apply -f\"\n\n")
	if err := c.writeYAML(w); err != nil {
		return err
	}
	return w.Flush()
}

func (c calibrated) writeHead(w io.Writer) {
	s := c.Stream
	fmt.Fprintf(w, "%s: %s samples in %v, at %.4g Hz, of %s\n", render.Printable(c.Name), render.Count(int64(s.N())), s.Length(), s.Hertz, functionsWords(s))
	if s.Functions() == 1 {
		writeWrapped(w, "", "There is one function: its share is always the whole, whatever the rate.")
	}
	for _, line := range c.lacks {
		fmt.Fprintln(w, "  "+line)
	}
}

// functionsWords counts them, as far as they are told apart.
func functionsWords(s *calibrate.Stream) string {
	n := counted(s.Functions(), "function")
	for _, counts := range s.Counts {
		if counts[len(counts)-1] > 0 {
			return n + " and others"
		}
	}
	return n
}

func (c calibrated) writePruning(w io.Writer) error {
	switch {
	case c.Threads == nil && c.fleet:
		writeWrapped(w, "", "What servers add up does not tell which thread was sampled: to find what pruning does, record an instance on its node (atys record -p PID --timed -F 1999 -d 5m -o busy.pb.gz), and calibrate by that file.")
		return nil
	case c.Threads == nil:
		writeWrapped(w, "", "Nothing tells which thread was sampled, so that none can be left out: recordings of atys in .pb.gz tell it.")
		return nil
	case c.Pruning == nil:
		writeWrapped(w, "", fmt.Sprintf("Of %s that were sampled %s leaves out none: no pruning is proposed.", counted(c.Threads.Skew.Sampled, "thread"), prune.Level(prune.MinLevel)))
		return nil
	}
	if err := rightward(w, c.pruningRows()); err != nil {
		return err
	}
	fmt.Fprintln(w)
	p := c.Pruning
	if len(p.Saved) > 0 {
		fmt.Fprintf(w, "T(p) = %s\n", lineWords(p.Time))
		fmt.Fprintf(w, "  off by %s of what was measured, in the mean; below P99 by %s\n", offWords(p.TimeFit.All), offWords(p.TimeFit.BelowP99))
	}
	fmt.Fprintf(w, "MAPE(p) = %s\n", logWords(p.Error))
	fmt.Fprintf(w, "  off by %s of what was measured, in the mean; below P99 by %s\n", offWords(p.ErrorFit.All), offWords(p.ErrorFit.BelowP99))
	writeWrapped(w, "", c.pruningWords())
	return nil
}

func lineWords(l calibrate.Line) string { return fmt.Sprintf("%.5g p %+.5g", l.A, l.B) }

func logWords(l calibrate.Log) string { return fmt.Sprintf("%.6g log(%.4g p %+.5g)", l.A, l.B, l.C) }

// offWords writes percent; of nothing but zeros there are none.
func offWords(percent float64) string {
	if math.IsNaN(percent) || math.IsInf(percent, 0) {
		return "-"
	}
	return strconv.FormatFloat(percent, 'f', 2, 64) + "%"
}

func (c calibrated) pruningRows() [][]string {
	p := c.Pruning
	rows := [][]string{{"level", "threads stay", fmt.Sprintf("top %d off by", min(calibrate.TopFunctions, c.Threads.Functions)), "fit", "time saved", "fit"}}
	for i, l := range c.Threads.Levels {
		row := []string{prune.Level(l.Percent), strconv.Itoa(l.Threads), offWords(p.Off[i].Value), offWords(p.Error.At(l.Percent)), "-", "-"}
		if len(p.Saved) > 0 {
			row[4], row[5] = offWords(p.Saved[i].Value), offWords(p.Time.At(l.Percent))
		}
		rows = append(rows, row)
	}
	return rows
}

// pruningWords says what is proposed, and why.
func (c calibrated) pruningWords() string {
	p := c.Pruning
	fit := "the fit allows no level"
	if p.Achievable {
		fit = "the fit allows " + prune.Level(math.Round(100*p.Level)/100)
	}
	allowed := fmt.Sprintf("To be off by at most %s (--epsilon) %s. ", offWords(p.Epsilon), fit)
	switch {
	case c.Unfitted:
		return fmt.Sprintf("No pruning is proposed: the fit of MAPE(p) failed, it is off by %s.", offWords(p.ErrorFit.BelowP99))
	case c.Level == prune.MaxLevel:
		return allowed + "No pruning is proposed, since the recording is off by more at all levels that were measured."
	}
	words := allowed + fmt.Sprintf("%s is proposed, where the recording is off by %s", prune.Level(c.Level), offWords(c.Off))
	const poor = 50 // percent that a fit is off, at levels where there is something to save
	switch {
	case len(p.Saved) == 0:
		return words + "."
	case !(p.TimeFit.BelowP99 < poor) || p.Time.A > 0:
		return words + "; how much time it saves is not known, since the fit is too far off (more --rounds help, and a quiet machine)."
	}
	return words + fmt.Sprintf(", and %s of the time would be saved by the fit.", offWords(p.Time.At(c.Level)))
}

// writeDivergences tells of each length of windows how much they diverge.
func (c calibrated) writeDivergences(w io.Writer) error {
	rows := [][]string{{"window", "median", "90%", "most", "by chance", fmt.Sprintf("at %.3g Hz", c.Chosen.Hertz), fmt.Sprintf("above theta %g", c.Theta)}}
	for _, window := range c.Tried.Windows {
		var nats []float64
		above := 0
		for _, d := range c.Stream.Divergences(window) {
			nats = append(nats, d.Nats)
			if d.Nats > c.Theta {
				above++
			}
		}
		if len(nats) == 0 {
			continue
		}
		slices.Sort(nats)
		at := func(part float64) string { return natsWords(nats[int(part*float64(len(nats)-1)+0.5)]) }
		rows = append(rows, []string{window.String(), at(0.5), at(0.9), at(1), natsWords(c.Stream.ByChance(window, c.Stream.Hertz)),
			natsWords(c.Stream.ByChance(window, c.Chosen.Hertz)), fmt.Sprintf("%d of %d", above, len(nats))})
	}
	if err := rightward(w, rows); err != nil {
		return err
	}
	fmt.Fprintln(w)
	writeWrapped(w, "", "\"By chance\" is how much windows of a program that always does the same diverge in the mean, at the rate of the recording and at that of the proposal: a threshold below it takes noise for changes.")
	return nil
}

func natsWords(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }

// writeRates lists the frontier and what was recorded by default.
func (c calibrated) writeRates(w io.Writer) error {
	rows := [][]string{{"", "candidate", "window", "Hz", "of CPU time", "off by, points"}}
	row := func(mark string, r calibrate.Result) {
		rows = append(rows, []string{mark, r.String(), r.Window.String(), strconv.FormatFloat(r.Hertz, 'f', 1, 64), c.costWords(r), pointsWords(r)})
	}
	for _, r := range calibrate.Frontier(c.Results) {
		mark := ""
		if r == c.Chosen && c.Refused == nil {
			mark = "proposed"
		}
		row(mark, r)
	}
	row("default", c.Baseline)
	if err := rightward(w, rows); err != nil {
		return err
	}
	fmt.Fprintln(w)
	writeWrapped(w, "", c.ratesWords())
	writeWrapped(w, "", c.howWords())
	return nil
}

// costWords is what sampling costs as a part of the CPU time that is profiled.
func (c calibrated) costWords(r calibrate.Result) string {
	if c.Sample == 0 {
		return "-"
	}
	return render.Share(r.Hertz * c.Sample.Seconds())
}

func pointsWords(r calibrate.Result) string {
	if r.Doubt == 0 { // of one replay nobody knows it
		return strconv.FormatFloat(100*r.Error, 'f', 2, 64)
	}
	return fmt.Sprintf("%.2f +- %.2f", 100*r.Error, 100*r.Doubt)
}

// ratesWords says what is proposed, and why.
func (c calibrated) ratesWords() string {
	if c.Refused != nil {
		return "No rate is proposed, and what was tried tells little."
	}
	within := fmt.Sprintf("at most %.2f points (--within)", 100*c.Within)
	one := fmt.Sprintf("%v in windows of %v", c.Chosen, c.Chosen.Window)
	if !c.Met {
		return fmt.Sprintf("No candidate is off by %s: %s is proposed, which is off by least. Allow more, or record at a higher rate.", within, one)
	}
	return fmt.Sprintf("Of those that are off by %s, %s is the cheapest.", within, one)
}

// howWords says what the figures are of.
func (c calibrated) howWords() string {
	words := fmt.Sprintf("Shown are those of %d candidates that no other one is cheaper and better than. ", len(c.Results)) +
		fmt.Sprintf("Off by is the root of the mean square over the largest %s, of the shares in each %v, against samples that no replay has; their own variance is taken off, and +- is the standard error of replays. ",
			counted(min(freq.DefaultTop, c.Stream.Functions()), "function"), c.Stream.Step) +
		"A decided rate holds from the window after the next on, and policies have run for long. Windows at low rates of policy atys stand for the last one at a high rate, until something changes; those of policy auto are pooled; those of fixed rates are as they are. "
	if c.fleet {
		words += "What a fleet keeps has no times of samples: replays thin whole windows. "
	}
	if c.Sample > 0 {
		return words + fmt.Sprintf("A sample cost %v of CPU time when this was recorded.", c.Sample.Round(100*time.Nanosecond))
	}
	return words + "What a sample costs the recording does not tell."
}

// writeYAML writes the proposal as it is applied.
func (c calibrated) writeYAML(w io.Writer) error {
	text, err := yaml.Marshal(c.Proposal)
	if err != nil {
		return err
	}
	if len(c.Targets) == 0 {
		fmt.Fprintf(w, "# of all targets: add select, such as select: '{service=\"%s\"}'\n", c.Proposal.Name)
	}
	_, err = w.Write(harmless(text))
	return err
}

// calibratedJSON is what was found as it is written; its field names are stable.
type calibratedJSON struct {
	Name        string          `json:"name"`
	Samples     float64         `json:"samples"`
	Seconds     float64         `json:"seconds"`
	Hertz       float64         `json:"hertz"`
	Functions   int             `json:"functions"`
	SampleCost  int64           `json:"sampleCostNs,omitempty"`
	Pruning     *pruningJSON    `json:"pruning,omitempty"`
	Divergences []divergedJSON  `json:"divergences"`
	Within      float64         `json:"within"`
	Met         bool            `json:"met"`
	Default     candidateJSON   `json:"default"`
	Chosen      candidateJSON   `json:"chosen"`
	Candidates  []candidateJSON `json:"candidates"`
	Proposal    any             `json:"proposal"`
}

type pruningJSON struct {
	Epsilon  float64    `json:"epsilonPercent"`
	Fit      *float64   `json:"fitLevel"` // null: none
	Level    float64    `json:"level"`
	Off      float64    `json:"offPercent"`
	Error    [3]float64 `json:"mapeFit"` // a log(b p + c), percent
	ErrorOff *float64   `json:"mapeFitOffPercent"`
	BelowP99 *float64   `json:"mapeFitOffPercentBelowP99"`
	Time     [2]float64 `json:"savedFit"` // a p + b, percent
	TimeOff  *float64   `json:"savedFitOffPercent"`
}

type divergedJSON struct {
	Window float64 `json:"windowSeconds"`
	At     float64 `json:"atSeconds"`
	Nats   float64 `json:"nats"`
}

type candidateJSON struct {
	Policy string  `json:"policy"`
	Window float64 `json:"windowSeconds"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Theta  float64 `json:"theta,omitempty"`
	Lambda float64 `json:"lambda,omitempty"`
	Width  float64 `json:"width,omitempty"`
	Hertz  float64 `json:"hertz"`
	Error  float64 `json:"error"`
	Doubt  float64 `json:"doubt"`
}

func candidateOf(r calibrate.Result) candidateJSON {
	return candidateJSON{r.Policy, r.Window.Seconds(), r.Min, r.Max, r.Theta, r.Lambda, r.Width, r.Hertz, r.Error, r.Doubt}
}

func (c calibrated) writeJSON(w io.Writer) error {
	out := calibratedJSON{Name: c.Name, Samples: c.Stream.N(), Seconds: c.Stream.Length().Seconds(), Hertz: c.Stream.Hertz, Functions: c.Stream.Functions(), SampleCost: int64(c.Sample),
		Within: c.Within, Met: c.Met, Default: candidateOf(c.Baseline), Chosen: candidateOf(c.Chosen), Proposal: c.Proposal}
	for _, r := range c.Results {
		out.Candidates = append(out.Candidates, candidateOf(r))
	}
	for _, window := range c.Tried.Windows {
		for _, d := range c.Stream.Divergences(window) {
			out.Divergences = append(out.Divergences, divergedJSON{window.Seconds(), d.At.Seconds(), d.Nats})
		}
	}
	if p := c.Pruning; p != nil {
		out.Pruning = &pruningJSON{Epsilon: p.Epsilon, Level: c.Level, Off: c.Off, Error: [3]float64{p.Error.A, p.Error.B, p.Error.C}, ErrorOff: number(p.ErrorFit.All), BelowP99: number(p.ErrorFit.BelowP99),
			Time: [2]float64{p.Time.A, p.Time.B}, TimeOff: number(p.TimeFit.All)}
		if p.Achievable {
			out.Pruning.Fit = &p.Level
		}
	}
	return printJSON(w, out)
}

// text is what is told in words.
func (c calibrated) text() (string, error) {
	var b strings.Builder
	err := c.writeWords(&b)
	return b.String(), err
}
