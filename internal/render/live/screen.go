package live

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"atys.dev/atys/internal/render"
)

// Screen is what is on the terminal: a table, and how the user looks at it.
// The zero value shows functions by self, without colours. It is pure: keys
// and tables go in, lines come out.
type Screen struct {
	Color bool
	Own   bool // show the developers' own functions only, see OwnCode

	table   Table
	sorted  sortBy
	threads bool
	paused  bool
	help    bool
	offset  int
	page    int // rows that fitted last time

	editing bool // the search is being typed
	search  string
	pattern *regexp.Regexp // of search; nil: none, or not valid
}

type sortBy uint8

const (
	bySelf sortBy = iota
	byTotal
	byName
)

// Paused tells whether new tables are to be held back.
func (s *Screen) Paused() bool { return s.paused }

// Show takes the newest table.
func (s *Screen) Show(t Table) { s.table = t }

// Press handles a key; quit tells that it was the last one.
func (s *Screen) Press(k Key) (quit bool) {
	switch {
	case k == KeyInterrupt:
		return true
	case s.editing:
		s.edit(k)
		return false
	case s.scroll(k):
		return false
	}
	switch k {
	case "q":
		return true
	case "/":
		s.editing, s.search, s.pattern, s.offset = true, "", nil, 0
	case "s":
		s.sorted = bySelf
	case "t":
		s.sorted = byTotal
	case "c":
		s.sorted = byName
	case "o":
		s.Own, s.threads, s.offset = !s.Own || s.threads, false, 0
	case "T":
		s.threads, s.offset = !s.threads, 0
	case "p":
		s.paused = !s.paused
	case "?", "h":
		s.help = !s.help
	case KeyEscape:
		if s.help {
			s.help = false
		} else {
			s.search, s.pattern, s.offset = "", nil, 0
		}
	}
	return false
}

// scroll handles the keys that move; lines bounds the offset.
func (s *Screen) scroll(k Key) bool {
	switch k {
	case KeyUp, "k":
		s.offset--
	case KeyDown, "j":
		s.offset++
	case KeyWheelUp:
		s.offset -= 3
	case KeyWheelDown:
		s.offset += 3
	case KeyPageUp:
		s.offset -= max(s.page-1, 1)
	case KeyPageDown:
		s.offset += max(s.page-1, 1)
	case KeyHome, "g":
		s.offset = 0
	case KeyEnd, "G":
		s.offset = 1 << 30
	default:
		return false
	}
	s.offset = max(s.offset, 0)
	return true
}

// maxSearch bounds what can be typed.
const maxSearch = 200

// edit handles a key while the search is typed; rows are filtered as it grows.
func (s *Screen) edit(k Key) {
	switch {
	case k == KeyEnter:
		s.editing = false
	case k == KeyEscape:
		s.editing, s.search, s.pattern = false, "", nil
	case k == KeyBackspace:
		if r := []rune(s.search); len(r) > 0 {
			s.search = string(r[:len(r)-1])
		}
	case len([]rune(string(k))) == 1 && len(s.search) < maxSearch:
		s.search += string(k)
	}
	s.pattern = nil
	if s.search != "" {
		s.pattern, _ = regexp.Compile("(?i)" + s.search) // while half typed it may be none
	}
	s.offset = 0
}

// Lines draws the screen, exactly height lines of at most width cells.
func (s *Screen) Lines(width, height int) []string {
	if s.help {
		return fitAll(helpLines(), width, height)
	}
	lines := []string{s.titleLine(), headLine(s.table.Head), "", s.functionHead()}
	rows := s.functionRows
	if s.threads {
		lines[3], rows = threadHead, s.threadRows
	}
	all := rows(width)
	s.page = max(height-len(lines)-1, 0)
	s.offset = min(s.offset, max(len(all)-s.page, 0))
	lines = append(lines, all[s.offset:min(s.offset+s.page, len(all))]...)
	lines = fitAll(lines, width, height-1)
	if s.Color && len(lines) > 3 {
		lines[0] = "\x1b[1m" + lines[0] + "\x1b[0m"
		lines[3] = "\x1b[7m" + render.Pad(lines[3], width) + "\x1b[0m"
	}
	return append(lines, s.footLine(len(all), width))
}

// fitAll makes a list exactly height lines long, none wider than width.
func fitAll(lines []string, width, height int) []string {
	out := make([]string, max(height, 0))
	for i := range min(len(out), len(lines)) {
		out[i] = render.Fit(lines[i], width)
	}
	return out
}

func (s *Screen) titleLine() string {
	h := s.table.Head
	line := fmt.Sprintf("atys top  %s  %s", render.Printable(h.Target), render.Printable(h.Event))
	if h.Rate > 0 {
		line += fmt.Sprintf(" at %g Hz", h.Rate)
	}
	switch {
	case h.Span == 0:
		line += "  waiting for the first samples"
	default:
		line += fmt.Sprintf("  last %s", render.Value(float64(h.Span), "nanoseconds"))
	}
	if h.Naming {
		line += "  looking up names"
	}
	if s.Own && !s.threads {
		line += "  own code"
	}
	if s.paused {
		line += "  PAUSED"
	}
	return line
}

// headLine says how well it was sampled.
func headLine(h Head) string {
	parts := []string{render.Count(h.Samples) + " samples"}
	if h.Span > 0 && h.CPU > 0 {
		parts = append(parts, fmt.Sprintf("%.2f CPUs used", float64(h.CPU)/float64(h.Span)))
	}
	if h.Idle > 0 {
		parts = append(parts, render.Share(h.Idle)+" idle")
	}
	if h.Lacks != "" {
		parts = append(parts, h.Lacks)
	}
	parts = append(parts, fmt.Sprintf("atys itself %s of a CPU", render.Share(h.Own)))
	return strings.Join(parts, ", ")
}

// functionHead names the columns, and marks the one that rows are sorted by.
func (s *Screen) functionHead() string {
	names := [...]string{bySelf: "SELF", byTotal: "TOTAL", byName: "FUNCTION"}
	if s.Own {
		names[bySelf] = "OWN"
	}
	names[s.sorted] += "*"
	rate := "CPUS"
	if s.table.Head.Unit != "nanoseconds" {
		rate = "A SECOND"
	}
	return fmt.Sprintf(columns, names[bySelf], "95%", "", names[byTotal], rate, names[byName])
}

// columns are those of functions: self, its interval and its mark, total, rate, name.
const columns = "%6s %12s %1s %6s %8s  %s"

const threadHead = "   CPU      TID     PID  SAMPLES  THREAD           MOSTLY IN"

func (s *Screen) functionRows(width int) []string {
	found := s.functions()
	rows := make([]string, len(found))
	for i, f := range found {
		rows[i] = functionRow(f, width)
	}
	return rows
}

func functionRow(f Function, width int) string {
	numbers := fmt.Sprintf(columns, percent(f.Self), interval(f), mark(f), percent(f.Total), rate(f.Rate), "")
	room := max(width-len([]rune(numbers)), 12)
	placed := render.Printable(f.Place)
	name := render.Printable(f.Function)
	if room < 40 {
		return numbers + render.Fit(name, room)
	}
	left := room * 2 / 3
	return numbers + render.Pad(name, left-1) + " " + render.Fit(placed, room-left)
}

// functions are those that match, in the order asked for.
func (s *Screen) functions() []Function {
	shown := AllCode(s.table)
	if s.Own {
		shown = OwnCode(s.table)
	}
	var found []Function
	for _, f := range shown.Functions {
		if s.pattern == nil || s.pattern.MatchString(f.Function) || s.pattern.MatchString(f.Place) {
			found = append(found, f)
		}
	}
	switch s.sorted {
	case byTotal:
		slices.SortStableFunc(found, func(a, b Function) int { return cmp.Compare(b.Total, a.Total) })
	case byName:
		slices.SortStableFunc(found, func(a, b Function) int { return cmp.Compare(a.Function, b.Function) })
	}
	return found
}

func (s *Screen) threadRows(width int) []string {
	var rows []string
	for _, t := range s.table.Threads {
		name := t.Name
		if t.Process != "" && t.Process != t.Name {
			name = t.Process + "/" + t.Name
		}
		if s.pattern != nil && !s.pattern.MatchString(name) && !s.pattern.MatchString(t.Top) {
			continue
		}
		row := fmt.Sprintf("%6.2f %8d %7d %8d  %s ", t.CPU, t.TID, t.PID, t.N, render.Pad(render.Printable(name), 16))
		if t.Top != "" {
			row += fmt.Sprintf("%4s %s", percent(t.TopSelf), render.Printable(t.Top))
		}
		rows = append(rows, render.Fit(row, width))
	}
	return rows
}

// footLine is what the user types, or what could be typed.
func (s *Screen) footLine(rows, width int) string {
	switch {
	case s.editing:
		line := "/" + render.Printable(s.search)
		if s.search != "" && s.pattern == nil {
			line += "   (not a regular expression yet)"
		}
		return render.Fit(line, width)
	case s.search != "":
		return render.Fit(fmt.Sprintf("%d rows match /%s/   Esc shows all", rows, render.Printable(s.search)), width)
	}
	return render.Fit("q quit  / search  s self  t total  c name  o own  T threads  p pause  ? help", width)
}

func helpLines() []string {
	return []string{
		"atys top: where time goes, now",
		"",
		"  q, Ctrl-C         quit",
		"  / text Enter      show only rows that match a regular expression; Esc shows all",
		"  s  t  c           sort by self, by total, by name",
		"  o                 only your own code, with what it called in that of others; or all",
		"  T                 threads, or functions again",
		"  p                 pause: sampling goes on, the table stands still",
		"  arrows, j k       scroll; PgUp PgDn Home End too, and the mouse wheel",
		"  ? or Esc          leave this help",
		"",
		"  SELF      share of the samples that hit the function itself",
		"  95%       where the true share lies, 95 times in 100: few samples, wide interval",
		"  ?         that is wider than the share itself, which could be noise",
		"  OWN       share of the samples where it was the last function of your own",
		"  TOTAL     share of the samples that hit it or what it called",
		"  CPUS      CPUs that its own code used, on average",
		"  threads   CPU is exact, from the scheduler; the function is where most samples were",
	}
}

func percent(share float64) string {
	if share >= 0.9995 {
		return "100%"
	}
	return fmt.Sprintf("%.1f%%", share*100)
}

func interval(f Function) string {
	return fmt.Sprintf("%.1f–%.1f%%", f.SelfLow*100, f.SelfHigh*100)
}

// mark is that of a share which could be noise: as everywhere, one whose interval
// is wider than itself. Of what was never hit no share is told.
func mark(f Function) string {
	if f.Self > 0 && f.SelfHigh-f.SelfLow > f.Self {
		return "?"
	}
	return ""
}

func rate(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
