package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"atys.dev/atys/internal/query"
	"atys.dev/atys/internal/render"
)

// row is a service in the list.
type row struct {
	Name    string
	CPU     string
	Share   string // of all
	Samples string
	Link    string
	Chosen  bool
	Hidden  bool // the filter hides it
	share   float64
}

// foldedRows stands for services that are folded.
type foldedRows struct {
	Count, Brief int
	CPU, Share   string
	Link         string
	Open         bool // they are listed below it
}

const (
	// minorShare is the share of all CPU time below which a service is folded.
	minorShare = 0.005
	// minorBrief is the same for short-lived commands, which nobody watches one by one.
	minorBrief = 0.02
	// fewestFolded is the least number of services that are folded.
	fewestFolded = 4
	// mostNamed is how many services are named if the one asked for does not exist.
	mostNamed = 12
)

// minor reports whether a service is folded: it used next to nothing, or is a
// short-lived command that used little.
func minor(s query.Service, share float64) bool {
	return share < minorShare || s.Brief && share < minorBrief
}

// list fills in the services, those that used most first.
func (m *overviewModel) list(a address, services []query.Service) {
	var whole float64
	for _, s := range services {
		whole += s.CPU.Seconds()
	}
	share := func(s query.Service) float64 {
		if whole == 0 {
			return 0
		}
		return s.CPU.Seconds() / whole
	}
	var major, folded []row
	var sum query.Service
	brief, found := 0, false
	for _, s := range services {
		r := rowOf(a, s, share(s))
		found = found || r.Chosen
		if minor(s, r.share) && !r.Chosen && a.Filter == "" {
			folded = append(folded, r)
			sum.CPU += s.CPU
			if s.Brief {
				brief++
			}
			continue
		}
		major = append(major, r)
	}
	m.Sorts = []link{{"service", a.with(func(a *address) { a.ByName = true }), a.ByName}, {"CPU", a.with(func(a *address) { a.ByName = false }), !a.ByName}}
	m.All = link{"all services", a.with(func(a *address) { a.Service = "" }), a.Service == ""}
	if a.Service != "" && !found && len(services) > 0 {
		m.Unknown = a.Service
		for _, name := range someNames(services) {
			m.Others = append(m.Others, link{Name: name, Link: a.with(func(a *address) { a.Service = name })})
		}
	}
	m.NothingMatches = a.Filter != "" && len(services) > 0
	for _, r := range major {
		m.NothingMatches = m.NothingMatches && r.Hidden
	}
	if m.Rows = major; len(folded) < fewestFolded || a.Minor {
		m.Rows = append(major, folded...)
	}
	if a.ByName {
		slices.SortFunc(m.Rows, func(x, y row) int { return cmp.Compare(strings.ToLower(x.Name), strings.ToLower(y.Name)) })
	}
	if len(folded) < fewestFolded {
		return
	}
	m.Folded = &foldedRows{Count: len(folded), Brief: brief, CPU: cpuCell(sum), Share: shareCell(share(sum)),
		Link: a.with(func(a *address) { a.Minor = !a.Minor }), Open: a.Minor}
}

func rowOf(a address, s query.Service, share float64) row {
	return row{Name: render.Printable(s.Name), CPU: cpuCell(s), Share: shareCell(share), Samples: render.Count(s.N), share: share,
		Link: a.with(func(a *address) { a.Service = s.Name }), Chosen: s.Name == a.Service, Hidden: !a.matches(s.Name)}
}

func cpuCell(s query.Service) string { return render.Value(float64(s.CPU), "nanoseconds") }

func shareCell(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// someNames names the services that used most.
func someNames(services []query.Service) (names []string) {
	for _, s := range services[:min(len(services), mostNamed)] {
		names = append(names, s.Name)
	}
	return names
}
