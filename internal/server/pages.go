package server

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
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

func (s *Server) query(a asked) store.Query {
	now := s.now()
	return store.Query{Level: store.Raw, Service: a.Service, Match: a.Select.Matches, From: now.Add(-a.Last), To: now}
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
	all := a
	all.Service = ""
	m, err := s.options.Store.Merge(r.Context(), s.options.Tenant, s.query(all), kind, store.Grouping{
		Key: func(series profile.Labels, _ *profile.Head) string { return series[store.ServiceLabel] }})
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
	}{Rows: services(a, m), Service: a.Service, Flame: a.With("/flame", a.Service, a.Last),
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

// services lists what used CPU time, the most first. The machine's own windows
// have no service and no samples.
func services(a asked, m *store.Merged) (rows []row) {
	var whole float64
	for _, c := range m.Columns {
		r := row{Name: c.Key, CPU: c.Head.Exact.CPU.Seconds(), Windows: c.Windows}
		for _, sum := range c.Sums {
			r.Samples += sum.N
		}
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

// flame draws a service, or all of them side by side.
func (s *Server) flame(w http.ResponseWriter, r *http.Request) {
	a, err := parseAsked(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m, err := s.options.Store.Merge(r.Context(), s.options.Tenant, s.query(a), kind, store.Grouping{})
	if err != nil {
		s.fail(w, "merge windows", err)
		return
	}
	if len(m.Columns) == 0 {
		http.Error(w, "there is nothing yet in these "+short(a.Last)+": windows come every few seconds", http.StatusNotFound)
		return
	}
	var out bytes.Buffer
	if err := draw(&out, m, a); err != nil {
		s.fail(w, "draw", err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(out.Bytes()) // whoever asked is gone if this fails
}

func draw(out *bytes.Buffer, m *store.Merged, a asked) error {
	window, err := query.Window(m, 0, kind)
	if err != nil {
		return err
	}
	tree, err := profile.NewTree(profile.TreeOptions{}, window)
	if err != nil {
		return err
	}
	title := "all services"
	if a.Service != "" {
		title = a.Service
	}
	return render.HTML(out, tree, render.Options{Title: title + ", last " + short(a.Last)})
}

// fail answers that something went wrong here; what, is in the log.
func (s *Server) fail(w http.ResponseWriter, what string, err error) {
	s.log.Error(what, "error", err)
	status := http.StatusInternalServerError
	if errors.Is(err, store.ErrClosed) {
		status = http.StatusServiceUnavailable
	}
	http.Error(w, "the server could not "+what+": its log says why", status)
}
