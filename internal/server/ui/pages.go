// Package ui draws the pages of a server: an overview of its services, and their flame
// graphs.
//
//	URL (address.go) -> query.Asker -> services.go, or a profile.Grove -> its tree -> render.HTML
package ui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
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
	"atys.dev/atys/internal/wire/atysv1"
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

// asset returns an embedded file.
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

// Tenant is what pages show of a tenant, beside its windows.
type Tenant interface {
	// Ailing returns the agents that report conditions, and counts agents by condition;
	// under "" it counts all agents.
	Ailing() ([]*atysv1.AgentStatus, map[string]int)
	OfService(name string) map[string]profile.Rate // that policies have decided, by profile
}

// Pages answers browsers. Its exported fields are required.
type Pages struct {
	Asker  func(context.Context) query.Asker     // of the tenant that asks
	Tenant func(context.Context) (Tenant, error) // that asks; its errors are logged already
	Now    func() time.Time
	Log    *slog.Logger

	classes Classes
}

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
	From, To       string      // of a custom range, as its fields show them
	Hidden         [][2]string // parameters that a form keeps
	HiddenOfTime   [][2]string
	Ranges, Own    []link
	Refreshes      []link
	All            link
	Sorts          []link // by the columns of the list
	Rows           []row
	Folded         *foldedRows
	Unknown        string // the service that is asked for, if it does not exist
	Others         []link // services that exist
	Rates          []string
	Lacks          render.Lacks
	Troubles       troubles
	Flame          string
	NothingMatches bool
	Empty          bool
}

// Overview answers with the overview of services.
func (p *Pages) Overview(w http.ResponseWriter, r *http.Request) {
	now := p.Now()
	a, err := parseAddress(r.URL.Query(), now)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	services, coverage, err := p.Asker(r.Context()).Services(r.Context(), a.selection(now, ""))
	if err != nil {
		p.fail(w, "list services", err)
		return
	}
	from, to := a.span(now)
	model := overviewModel{Style: template.CSS(overviewStyle), Script: template.JS(overviewScript), Refresh: int(a.Refresh.Seconds()),
		Title: a.Service, When: a.When(), Fixed: a.fixed(), Asked: a,
		Lacks: CoverageWords(coverage, from, to), Flame: a.flame(), Empty: len(services) == 0}
	if t, err := p.Tenant(r.Context()); err == nil {
		model.Rates, model.Troubles = rateLines(t.OfService(a.Service)), troublesOf(t.Ailing())
	}
	model.list(a, services)
	model.choices(a)
	if model.Empty && a.Refresh == 0 && !a.fixed() {
		model.Refresh = 3 // the first windows are about to come
	}
	var out bytes.Buffer
	if err := overviewPage.Execute(&out, model); err != nil {
		p.fail(w, "write the page", err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", overviewPolicy)
	_, _ = w.Write(out.Bytes()) // the client is gone if this fails
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

// rateLines describe the rates that policies have decided of a service, by profile.
func rateLines(rates map[string]profile.Rate) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(rates)) {
		rate := rates[name]
		lines = append(lines, fmt.Sprintf("Sampled at %.3g Hz, as policy %s of profile %s decided: %s (%s).", rate.Hertz, rate.Policy, name, rate.Reason, rate.Why))
	}
	return lines
}

// CoverageWords describes what an answer lacks, with times in UTC.
func CoverageWords(c query.Coverage, from, to time.Time) render.Lacks {
	return coverageOf(c, from, to).Words(time.UTC)
}

// coverageOf converts the coverage of an answer to that of package render.
func coverageOf(c query.Coverage, from, to time.Time) render.Coverage {
	out := render.Coverage{Samples: c.N, CPU: c.CPU, Cost: c.Cost.Total(), Losses: c.Losses, Damaged: c.Damaged, Doubtful: c.Doubtful,
		Pushed: c.Pushed, PushedMore: c.PushedMore, Overlapping: c.Overlapping, PrunedShare: c.MostOff(), Asked: render.Span{From: from, To: to}, Dropped: spansOf(c.Dropped)}
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

// Flame answers with the flame graph of a service, or of all side by side.
func (p *Pages) Flame(w http.ResponseWriter, r *http.Request) {
	now := p.Now()
	a, err := parseAddress(r.URL.Query(), now)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	about := a.selection(now, a.Service)
	grove, coverage, err := p.Asker(r.Context()).Merge(r.Context(), about)
	if err != nil {
		p.fail(w, "merge windows", err)
		return
	}
	if grove == nil {
		p.nothing(w, r, a)
		return
	}
	lacks := CoverageWords(coverage, about.From, about.To)
	var out bytes.Buffer
	if err := drawFlame(&out, p.classes.Of(grove), a, &lacks); err != nil {
		p.fail(w, "draw", err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "frame-ancestors 'self'") // beside the page's own, which is stricter
	_, _ = w.Write(out.Bytes())                                         // the client is gone if this fails
}

// nothing answers that there is nothing to draw: no such service, or no windows.
func (p *Pages) nothing(w http.ResponseWriter, r *http.Request, a address) {
	services, _, err := p.Asker(r.Context()).Services(r.Context(), a.selection(p.Now(), ""))
	switch {
	case err != nil:
		p.fail(w, "list services", err)
	case a.Service != "" && len(services) > 0:
		http.Error(w, fmt.Sprintf("there is no service %q, %s; there are: %s", a.Service, a.When(), strings.Join(someNames(services), ", ")), http.StatusNotFound)
	default:
		http.Error(w, "there are no samples, "+a.When()+": windows arrive every few seconds, and a longer time may have some", http.StatusNotFound)
	}
}

// drawFlame draws a grove whose frames have their classes, folded to the application's
// own code unless all frames are asked for.
func drawFlame(out *bytes.Buffer, grove *profile.Grove, a address, lacks *render.Lacks) error {
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

// fail logs an error, and answers that there is one. If the store is closed the server
// is shutting down, which is no error.
func (p *Pages) fail(w http.ResponseWriter, what string, err error) {
	if errors.Is(err, store.ErrClosed) {
		http.Error(w, "the server closes: ask again", http.StatusServiceUnavailable)
		return
	}
	p.Log.Error(what, "error", err)
	http.Error(w, "the server could not "+what+": its log says why", http.StatusInternalServerError)
}
