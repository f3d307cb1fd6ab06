package server

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/spec"
	"atys.dev/atys/internal/store"
)

//go:embed overview.html
var pages embed.FS

var overviewPage = template.Must(template.ParseFS(pages, "overview.html"))

// kind is what the pages show.
const kind = "cpu"

// asked is what a page is to show, as its address says.
type asked struct {
	Service string
	Select  spec.Selector // of series, beside the service
	Last    time.Duration
}

// ranges are offered as links; any other length can be asked for by address.
var ranges = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

func parseAsked(values url.Values) (a asked, err error) {
	a.Service, a.Last = values.Get("service"), 15*time.Minute
	if a.Select, err = spec.ParseSelector(values.Get("select")); err != nil {
		return a, fmt.Errorf("select: %w", err)
	}
	if last := values.Get("last"); last != "" {
		if a.Last, err = time.ParseDuration(last); err != nil || a.Last <= 0 || a.Last > 10*365*24*time.Hour {
			return a, fmt.Errorf("last=%.40q is no length of time: write 15m or 24h", last)
		}
	}
	return a, nil
}

// With gives the address of a page that shows something else.
func (a asked) With(page, service string, last time.Duration) string {
	v := url.Values{"last": {short(last)}}
	if service != "" {
		v.Set("service", service)
	}
	if len(a.Select) > 0 {
		v.Set("select", a.Select.String())
	}
	return page + "?" + v.Encode()
}

// short writes 15m0s as 15m.
func short(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

// selection is what a page is about, of one service or of all.
func (s *Server) selection(a asked, service string) query.Selection {
	now := s.now()
	about := query.Selection{Select: a.Select, Kind: kind, From: now.Add(-a.Last), To: now}
	if service != "" {
		about.Select = append(slices.Clone(about.Select), spec.Matcher{Label: store.ServiceLabel, Op: spec.Equal, Value: service})
	}
	return about
}

// row is a service on the overview.
type row struct {
	Name    string
	CPU     float64 // seconds
	Share   float64 // of all, in percent
	Samples int64
	Windows int
	Link    string
	Chosen  bool
}

// rangeLink is a length of time on the overview.
type rangeLink struct {
	Name, Link string
	Chosen     bool
}

func (s *Server) overview(w http.ResponseWriter, r *http.Request) {
	a, err := parseAsked(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	parts, coverage, err := s.asker(r.Context()).Split(r.Context(), s.selection(a, ""), query.Split{By: store.ServiceLabel})
	if err != nil {
		s.fail(w, "list services", err)
		return
	}
	page := struct {
		Rows    []row
		Ranges  []rangeLink
		Service string
		Flame   string
		All     rangeLink
		Rates   []string
		Lacks   []string
	}{Rows: services(a, parts), Rates: s.rateWords(r.Context(), a.Service), Lacks: lacks(coverage), Service: a.Service, Flame: a.With("/flame", a.Service, a.Last),
		All: rangeLink{"all services", a.With("/", "", a.Last), a.Service == ""}}
	for _, d := range ranges {
		page.Ranges = append(page.Ranges, rangeLink{short(d), a.With("/", a.Service, d), d == a.Last})
	}
	var out bytes.Buffer
	if err := overviewPage.Execute(&out, page); err != nil {
		s.fail(w, "write the page", err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-src 'self'; base-uri 'none'; form-action 'none'")
	_, _ = w.Write(out.Bytes()) // whoever asked is gone if this fails
}

// rateWords say how often a service is sampled now, and why, where policies choose that.
func (s *Server) rateWords(ctx context.Context, service string) (words []string) {
	f, err := s.fleet(ctx)
	if service == "" || err != nil { // it is told in the log
		return nil
	}
	rates := f.rates.list("", service)
	for _, key := range sortedKeys(rates) {
		rate := rates[key]
		words = append(words, fmt.Sprintf("Sampled at %.3g Hz, as policy %s of profile %s decided: %s (%s).", rate.Hertz, rate.Policy, key.task, rate.Reason, rate.Why))
	}
	return words
}

// services lists what used CPU time, the most first. The machine's own windows
// have no service and no samples.
func services(a asked, parts []query.Part) (rows []row) {
	var whole float64
	for _, p := range parts {
		r := row{Name: p.By, CPU: p.CPU.Seconds(), Windows: p.Windows, Samples: p.N}
		if r.Name == "" && r.Samples == 0 {
			continue
		}
		r.Link, r.Chosen = a.With("/", r.Name, a.Last), r.Name == a.Service
		whole += r.CPU
		rows = append(rows, r)
	}
	for i := range rows {
		if whole > 0 {
			rows[i].Share = 100 * rows[i].CPU / whole
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(-cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.Name, b.Name)) })
	return rows
}

// lacks says in words what an answer does not hold.
func lacks(c query.Coverage) (words []string) {
	if c.Damaged > 0 {
		words = append(words, fmt.Sprintf("%d parts of the store are damaged, and left out.", c.Damaged))
	}
	for _, t := range c.Tasks {
		words = append(words, fmt.Sprintf("Profile %s recorded %d of %d eligible instances.", t.Task, t.Instances.Recorded, t.Instances.Eligible))
	}
	if len(c.Overlapping) > 0 {
		words = append(words, fmt.Sprintf("Profiles %s recorded the same at the same time: what several of them saw counts more than once.", strings.Join(c.Overlapping, ", ")))
	}
	if c.Doubtful > 0 {
		words = append(words, fmt.Sprintf("%d windows may have been at other times: the clocks of their machines were not known well.", c.Doubtful))
	}
	for _, span := range c.Dropped {
		words = append(words, fmt.Sprintf("Windows of %s to %s (UTC) are kept no more.", span.From.UTC().Format(time.DateTime), span.To.UTC().Format(time.DateTime)))
	}
	for _, n := range c.Nodes {
		var missing time.Duration
		for _, gap := range n.Missing {
			missing += gap.To.Sub(gap.From)
		}
		if missing > 0 {
			words = append(words, fmt.Sprintf("Node %s was not watched for %v in %d gaps.", n.Node, missing.Round(time.Second), len(n.Missing)))
		}
		if n.Silent {
			words = append(words, fmt.Sprintf("The agent of node %s is silent since %s (UTC).", n.Node, n.Last.UTC().Format(time.DateTime)))
		}
		for _, stop := range n.Stopped {
			words = append(words, fmt.Sprintf("The agent of node %s was stopped from %s to %s (UTC).", n.Node, stop.From.UTC().Format(time.TimeOnly), stop.To.UTC().Format(time.TimeOnly)))
		}
	}
	for _, l := range c.Losses {
		switch {
		case l.Reason.OfWindows():
			words = append(words, fmt.Sprintf("%d windows never came: %s.", l.N, l.Reason))
		case l.Reason.OfSamples():
			words = append(words, fmt.Sprintf("%d of %d samples: %s (%s).", l.N, c.N, l.Reason, l.Detail))
		default:
			words = append(words, fmt.Sprintf("%d %s: %s (%s).", l.N, l.Reason.Unit(), l.Reason, l.Detail))
		}
	}
	if off := c.MostOff(); off > 0 {
		words = append(words, fmt.Sprintf("Threads were pruned: no function's share is off by more than %s.", render.Share(off)))
	}
	return words
}

// flame draws a service, or all of them side by side.
func (s *Server) flame(w http.ResponseWriter, r *http.Request) {
	a, err := parseAsked(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	grove, coverage, err := s.asker(r.Context()).Merge(r.Context(), s.selection(a, a.Service))
	if err != nil {
		s.fail(w, "merge windows", err)
		return
	}
	if grove == nil {
		http.Error(w, "there is nothing yet in these "+short(a.Last)+": windows come every few seconds", http.StatusNotFound)
		return
	}
	for _, words := range lacks(coverage) {
		grove.Head.AddComment(words)
	}
	var out bytes.Buffer
	if err := draw(&out, grove, a); err != nil {
		s.fail(w, "draw", err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(out.Bytes()) // whoever asked is gone if this fails
}

func draw(out *bytes.Buffer, grove *profile.Grove, a asked) error {
	title := "all services"
	if a.Service != "" {
		title = a.Service
	}
	return render.HTML(out, grove.Tree(), render.Options{Title: title + ", last " + short(a.Last)})
}

// fail answers that something went wrong here; what, is in the log. A server that
// was told to end closes its store: nothing is wrong then.
func (s *Server) fail(w http.ResponseWriter, what string, err error) {
	if errors.Is(err, store.ErrClosed) {
		http.Error(w, "the server closes: ask again", http.StatusServiceUnavailable)
		return
	}
	s.log.Error(what, "error", err)
	http.Error(w, "the server could not "+what+": its log says why", http.StatusInternalServerError)
}
