package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
	fold "atys.dev/atys/internal/profile/selection"
	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/store"
)

//go:embed pages
var pages embed.FS

var (
	overviewPage   = template.Must(template.ParseFS(pages, "pages/overview.html"))
	overviewStyle  = asset("overview.css")
	overviewScript = asset("overview.js")
	// The page may run its own script and style, frame the graph, and nothing else.
	overviewPolicy = fmt.Sprintf("default-src 'none'; script-src '%s'; style-src '%s'; img-src data:; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
		fingerprint(overviewScript), fingerprint(overviewStyle))
)

// asset is an embedded file, which is there.
func asset(name string) string {
	text, err := pages.ReadFile("pages/" + name)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// fingerprint is a source expression of a content security policy.
func fingerprint(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// kind is what the pages show.
const kind = "cpu"

// link is a choice on the overview.
type link struct {
	Name, Link string
	Chosen     bool
}

// overviewModel is what the template shows.
type overviewModel struct {
	Style          template.CSS
	Script         template.JS
	Refresh        int // seconds; 0: never
	Title, When    string
	Fixed          bool
	Asked          address
	From, To       string      // as the fields of a time of one's own show them
	Hidden         [][2]string // parameters that a form keeps
	HiddenOfTime   [][2]string
	Ranges, Own    []link
	Refreshes      []link
	All            link
	Sorts          []link // by the columns of the list
	Rows           []row
	Folded         *foldedRows
	Unknown        string // the service that is asked for, where there is none such
	Others         []link // services that there are instead
	Rates          []string
	Lacks          render.Lacks
	Troubles       troubles
	Flame          string
	NothingMatches bool
	Empty          bool
}

func (s *Server) overview(w http.ResponseWriter, r *http.Request) {
	now := s.now()
	a, err := parseAddress(r.URL.Query(), now)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	services, coverage, err := s.asker(r.Context()).Services(r.Context(), a.selection(now, ""))
	if err != nil {
		s.fail(w, "list services", err)
		return
	}
	from, to := a.span(now)
	model := overviewModel{Style: template.CSS(overviewStyle), Script: template.JS(overviewScript), Refresh: int(a.Refresh.Seconds()),
		Title: a.Service, When: a.When(), Fixed: a.fixed(), Asked: a,
		Rates: s.rateWords(r.Context(), a.Service), Lacks: coverageWords(coverage, from, to), Troubles: s.troubles(r.Context()), Flame: a.flame(), Empty: len(services) == 0}
	model.list(a, services)
	model.choices(a)
	if model.Empty && a.Refresh == 0 && !a.fixed() {
		model.Refresh = 3 // the first windows are about to come
	}
	var out bytes.Buffer
	if err := overviewPage.Execute(&out, model); err != nil {
		s.fail(w, "write the page", err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", overviewPolicy)
	_, _ = w.Write(out.Bytes()) // whoever asked is gone if this fails
}

// choices makes the links and forms that change what is shown.
func (m *overviewModel) choices(a address) {
	for _, d := range ranges {
		m.Ranges = append(m.Ranges, link{short(d), a.with(func(a *address) { a.Last, a.From, a.To = d, time.Time{}, time.Time{} }), !a.fixed() && d == a.Last})
	}
	for _, all := range []bool{false, true} {
		name := "own code"
		if all {
			name = "all frames"
		}
		m.Own = append(m.Own, link{name, a.with(func(a *address) { a.All = all }), a.All == all})
	}
	for _, d := range refreshes {
		name := "off"
		if d > 0 {
			name = short(d)
		}
		m.Refreshes = append(m.Refreshes, link{name, a.with(func(a *address) { a.Refresh = d }), a.Refresh == d})
	}
	if !a.From.IsZero() {
		m.From = a.From.Format(time.RFC3339)
	}
	if !a.To.IsZero() {
		m.To = a.To.Format(time.RFC3339)
	}
	values := a.values()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		kept := [2]string{name, values.Get(name)}
		if name != "filter" {
			m.Hidden = append(m.Hidden, kept)
		}
		if name != "from" && name != "to" && name != "last" {
			m.HiddenOfTime = append(m.HiddenOfTime, kept)
		}
	}
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

// coverageWords words what an answer lacks, with times in UTC.
func coverageWords(c query.Coverage, from, to time.Time) render.Lacks {
	return coverageOf(c, from, to).Words(time.UTC)
}

// coverageOf is an answer's coverage as it is worded everywhere.
func coverageOf(c query.Coverage, from, to time.Time) render.Coverage {
	out := render.Coverage{Samples: c.N, CPU: c.CPU, Cost: c.Cost.Total(), Losses: c.Losses, Damaged: c.Damaged, Doubtful: c.Doubtful,
		Overlapping: c.Overlapping, PrunedShare: c.MostOff(), Asked: render.Span{From: from, To: to}, Dropped: spansOf(c.Dropped)}
	for _, t := range c.Tasks {
		out.Tasks = append(out.Tasks, render.TaskCoverage(t))
	}
	for _, n := range c.Nodes {
		out.Nodes = append(out.Nodes, render.NodeCoverage{Node: n.Node, Task: n.Task, First: n.First, Last: n.Last, Watched: n.Watched,
			Missing: spansOf(n.Missing), Stopped: spansOf(n.Stopped), Silent: n.Silent})
	}
	return out
}

func spansOf(spans []query.Span) (all []render.Span) {
	for _, s := range spans {
		all = append(all, render.Span(s))
	}
	return all
}

// flame draws a service, or all of them side by side.
func (s *Server) flame(w http.ResponseWriter, r *http.Request) {
	now := s.now()
	a, err := parseAddress(r.URL.Query(), now)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	about := a.selection(now, a.Service)
	grove, coverage, err := s.asker(r.Context()).Merge(r.Context(), about)
	if err != nil {
		s.fail(w, "merge windows", err)
		return
	}
	if grove == nil {
		s.nothing(w, r, a)
		return
	}
	lacks := coverageWords(coverage, about.From, about.To)
	var out bytes.Buffer
	if err := draw(&out, s.classes.of(grove), a, &lacks); err != nil {
		s.fail(w, "draw", err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "frame-ancestors 'self'") // beside the page's own, which is stricter
	_, _ = w.Write(out.Bytes())                                         // whoever asked is gone if this fails
}

// nothing answers that there is nothing to draw: no such service, or no windows yet.
func (s *Server) nothing(w http.ResponseWriter, r *http.Request, a address) {
	services, _, err := s.asker(r.Context()).Services(r.Context(), a.selection(s.now(), ""))
	switch {
	case err != nil:
		s.fail(w, "list services", err)
	case a.Service != "" && len(services) > 0:
		http.Error(w, fmt.Sprintf("there is no service %q, %s; there are: %s", a.Service, a.When(), strings.Join(someNames(services), ", ")), http.StatusNotFound)
	default:
		http.Error(w, "there are no samples, "+a.When()+": windows arrive every few seconds, and a longer time may have some", http.StatusNotFound)
	}
}

// draw draws a grove whose frames have their classes, folded to the application's own code unless all is asked for.
func draw(out *bytes.Buffer, grove *profile.Grove, a address, lacks *render.Lacks) error {
	title := "all services"
	if a.Service != "" {
		title = a.Service
	}
	title += ", " + a.When()
	if !a.All {
		grove, title = fold.OwnGrove(grove), title+", own code"
	}
	return render.HTML(out, grove.Tree(), render.Options{Title: title, Lacks: lacks})
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
