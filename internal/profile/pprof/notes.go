package pprof

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	gp "github.com/google/pprof/profile"

	"atys.dev/atys/internal/profile"
)

// Notes keep what the format has no field for, one per line:
//
//	atys.window: version=1 task=nightly design=randomised end=complete cpu_ns=12000 ...
//	atys.target: service.name=shop container=3f1c
//	atys.type: column=1 kind=cpu unit=nanoseconds period=1001001
//	atys.loss: reason=lost detail="ring full" n=3 value=3003003
//	atys.comment: text="a comment of the window that looks like one of these"
//	atys.thread: pid=7 tid=8 process=shop name=http-1 cpu_ns=12000 user_ns=11000 ...
//	atys.frames: functions=1-312 kind=native class=library
//	atys.location: id=9 kind=python name=f file=a.py line=3
//
// Values are bare words, or Go strings in quotes. Keys that are absent have
// their zero value; keys a reader does not know are skipped.
//
// The first five, of which there are few, are comments of the profile, so that
// other tools show them. The others would bury those; they are strings of a
// protobuf field that is ours alone, which other readers skip.
const notePrefix = "atys."

const noteField = 7411 // of message Profile: repeated string

// note is one line being written.
type note struct{ b strings.Builder }

func newNote(name string) *note {
	n := &note{}
	n.b.WriteString(notePrefix + name + ":")
	return n
}

func (n *note) text(key, value string) *note {
	if value != "" {
		fmt.Fprintf(&n.b, " %s=%s", word(key), word(value))
	}
	return n
}

func (n *note) number(key string, value int64) *note {
	if value != 0 {
		fmt.Fprintf(&n.b, " %s=%d", key, value)
	}
	return n
}

func (n *note) exact(e profile.Exact) *note {
	n.number("cpu_ns", int64(e.CPU)).number("user_ns", int64(e.User)).number("system_ns", int64(e.System))
	n.number("wall_ns", int64(e.Wall)).number("run_queue_ns", int64(e.RunQueue)).number("bytes", e.Bytes)
	n.text("source", e.Source)
	if e.IncludesInterrupt {
		n.text("interrupt", "true")
	}
	return n
}

func (n *note) rate(r profile.Rate) {
	if r == (profile.Rate{}) {
		return
	}
	n.text("hertz", strconv.FormatFloat(r.Hertz, 'g', -1, 64)).text("policy", r.Policy).text("reason", r.Reason).text("why", r.Why).text("by", r.By)
}

func word(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:#+@", r)
	}
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return strconv.QuoteToASCII(s)
	}
	return s
}

// comments lists the profile's comments: the window's own, and the notes to be seen.
func (e *encoder) comments() []string {
	var out []string
	for _, c := range e.win.Comments {
		if strings.HasPrefix(c, notePrefix) {
			c = newNote("comment").text("text", c).b.String()
		}
		out = append(out, utf8(c))
	}
	add := func(n *note) { out = append(out, n.b.String()) }
	h := &e.win.Head
	window := newNote("window").number("version", 1).text("task", h.Task).text("design", string(h.Design)).text("end", e.end.String())
	window.number("clock_offset_ns", int64(h.ClockOffset)).number("clock_error_ns", int64(h.ClockError))
	if h.Instances != (profile.Instances{}) {
		window.number("instances", int64(h.Instances.Recorded)).number("eligible", int64(h.Instances.Eligible))
	}
	if h.Farewell {
		window.text("farewell", "true")
	}
	window.rate(h.Rate)
	window.number("slot_ns", int64(h.Slot)).number("idle_ns", int64(h.Idle)).number("watched_ns", int64(h.Watched)).exact(h.Exact)
	if h.Cost != (profile.Cost{}) {
		window.number("cost_user_ns", int64(h.Cost.User)).number("cost_bpf_ns", int64(h.Cost.BPF)).number("cost_interrupt_ns", int64(h.Cost.Interrupt))
	}
	window.text("dictionary", dictionaryHash(e.p))
	if len(e.win.Samples) > 0 || len(e.extras) > 0 {
		window.text("samples", samplesHash(e.p))
	}
	add(window)
	if len(h.Target) > 0 {
		target := newNote("target")
		for _, k := range slices.Sorted(maps.Keys(h.Target)) {
			fmt.Fprintf(&target.b, " %s=%s", word(k), word(h.Target[k]))
		}
		add(target)
	}
	for i, t := range h.Types {
		n := newNote("type")
		fmt.Fprintf(&n.b, " column=%d", e.column[i])
		n.text("kind", t.Kind).text("unit", t.Unit).number("period", t.Period)
		if t.Temporality != temporalityOf(t.Kind) {
			n.text("temporality", t.Temporality.String())
		}
		if t.Variance != profile.FromWeights {
			n.text("variance", t.Variance.String())
		}
		add(n.text("base", t.EncodedBase()))
	}
	for _, l := range h.Losses {
		add(newNote("loss").text("reason", string(l.Reason)).text("detail", l.Detail).number("n", l.N).number("value", l.Value))
	}
	return out
}

// hidden lists the notes that are not comments: of threads, functions, locations and rows.
func (e *encoder) hidden() []string {
	var out []string
	for _, t := range e.win.Threads {
		if t.Exact != (profile.Exact{}) {
			n := newNote("thread").number("pid", int64(t.PID)).number("tid", int64(t.TID))
			out = append(out, n.text("process", t.Process).text("name", t.Name).exact(t.Exact).b.String())
		}
	}
	for i := 0; i < len(e.order); {
		a, first := e.order[i].attributes, i
		for i < len(e.order) && e.order[i].attributes == a {
			i++
		}
		if a == (attributes{}) {
			continue
		}
		n := newNote("frames")
		fmt.Fprintf(&n.b, " functions=%d-%d", first+1, i)
		if a.kind != 0 {
			n.text("kind", a.kind.String())
		}
		if a.class != 0 {
			n.text("class", a.class.String())
		}
		n.text("inlined", inlinedWords[a.inlined])
		if a.moved {
			fmt.Fprintf(&n.b, " mapping=%s", word(a.mapping))
		}
		out = append(out, n.b.String())
	}
	for id, loc := range e.locations {
		if loc == nil {
			continue
		}
		want := e.win.Locations[id]
		var frames []profile.Frame
		if names := e.win.Names[id]; len(names) > 0 || want.BuildID == "" {
			frames = e.win.Frames(profile.LocationID(id))
		}
		if got, ok := inferLocation(loc, frames); ok && got == want {
			continue
		}
		n := newNote("location").number("id", int64(loc.ID)).text("kind", want.Kind.String())
		n.text("buildid", want.BuildID).text("offset", hex(want.Offset))
		out = append(out, n.text("name", want.Name).text("file", want.File).number("line", int64(want.Line)).b.String())
	}
	return append(out, e.extras...)
}

var inlinedWords = [...]string{inlinedByPlace: "", inlinedYes: "yes", inlinedNo: "no"}

func hex(offset uint64) string {
	if offset == 0 {
		return ""
	}
	return "0x" + strconv.FormatUint(offset, 16)
}

// dictionaryHash names the state of the dictionaries that notes refer to by
// number: a tool that renumbers them keeps the comments as they are.
func dictionaryHash(p *gp.Profile) string {
	h := fnv.New64a()
	for _, f := range p.Function {
		fmt.Fprintf(h, "%d %q %q %q %d\n", f.ID, f.Name, f.SystemName, f.Filename, f.StartLine)
	}
	for _, l := range p.Location {
		fmt.Fprintf(h, "%d %d %d\n", l.ID, l.Address, len(l.Line))
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// noted is what the notes of a profile say.
type noted struct {
	windows   int // how many window notes there were: several after a merge elsewhere
	head      profile.Head
	end       profile.End
	hash      string // of the dictionaries that notes refer to
	samples   string // hash of the samples that timed ones refer to
	types     []typeNote
	threads   []profile.Thread
	frames    []framesNote
	locations map[uint64]profile.Location

	peers, variances []fields // see rows.go
}

type typeNote struct {
	column int
	profile.ValueType
}

type framesNote struct {
	first, last uint64
	attributes
}

// parseNotes reads comments, and the notes that are none. Comments that are no
// notes stay comments.
func parseNotes(comments, hidden []string) *noted {
	n := &noted{locations: map[uint64]profile.Location{}}
	for _, c := range comments {
		if !n.parse(c) {
			n.head.Comments = append(n.head.Comments, c)
		}
	}
	for _, h := range hidden {
		n.parse(h)
	}
	return n
}

func (n *noted) parse(line string) bool {
	name, rest, ok := strings.Cut(line, ":")
	name, isNote := strings.CutPrefix(name, notePrefix)
	if !ok || !isNote {
		return false
	}
	f, err := parseFields(rest)
	return err == nil && n.take(name, f)
}

// take uses one note; false if it knows no note of that name.
func (n *noted) take(name string, f fields) bool {
	switch name {
	case "window":
		n.window(f)
	case "target":
		n.head.Target = profile.Labels(f)
	case "type":
		t := profile.ValueType{Kind: f["kind"], Unit: f["unit"], Period: f.number("period"), Temporality: temporalityOf(f["kind"])}
		if name, ok := f["temporality"]; ok {
			t.Temporality = profile.ParseTemporality(name)
		}
		t.DecodeBase(f["base"])
		t.Variance = profile.ParseVariance(f["variance"])
		n.types = append(n.types, typeNote{int(f.number("column")), t})
	case "loss":
		n.head.AddLoss(profile.Loss{Reason: profile.LossReason(f["reason"]), Detail: f["detail"], N: f.number("n"), Value: f.number("value")})
	case "thread":
		n.threads = append(n.threads, profile.Thread{PID: int(f.number("pid")), TID: int(f.number("tid")),
			Process: f["process"], Name: f["name"], Exact: f.exact(), Pruned: profile.NamedPruned(f["name"])})
	case "frames":
		n.framesOf(f)
	case "location":
		offset, _ := strconv.ParseUint(f["offset"], 0, 64)
		n.locations[uint64(f.number("id"))] = profile.Location{Kind: profile.ParseKind(f["kind"]), BuildID: f["buildid"],
			Offset: offset, Name: f["name"], File: f["file"], Line: int(f.number("line"))}
	case "peer":
		n.peers = append(n.peers, f)
	case "variance":
		n.variances = append(n.variances, f)
	case "comment":
		n.head.Comments = append(n.head.Comments, f["text"])
	default:
		return false
	}
	return true
}

func (n *noted) window(f fields) {
	n.windows++
	h := &n.head
	exact, idle, watched := f.exact(), f.duration("idle_ns"), f.duration("watched_ns")
	cost := profile.Cost{User: f.duration("cost_user_ns"), BPF: f.duration("cost_bpf_ns"), Interrupt: f.duration("cost_interrupt_ns")}
	if n.windows > 1 { // merged by another tool: keep what adds up
		h.Task, h.Design, h.Slot, n.end, n.hash = "", profile.DesignUnknown, 0, profile.EndUnknown, ""
		n.samples = ""
		h.Exact.Add(exact)
		h.Idle += idle
		h.Watched += watched
		h.Cost.Add(cost)
		h.Rate.Absorb(f.rate())
		h.Farewell = h.Farewell || f["farewell"] == "true"
		return
	}
	h.Task, h.Design, h.Farewell = f["task"], profile.Design(f["design"]), f["farewell"] == "true"
	h.ClockOffset, h.ClockError, h.Slot = f.duration("clock_offset_ns"), f.duration("clock_error_ns"), f.duration("slot_ns")
	h.Instances = profile.Instances{Recorded: int(f.duration("instances")), Eligible: int(f.duration("eligible"))}
	h.Exact, h.Idle, h.Watched, h.Cost, h.Rate = exact, idle, watched, cost, f.rate()
	n.end, n.hash, n.samples = profile.ParseEnd(f["end"]), f["dictionary"], f["samples"]
}

func (n *noted) framesOf(f fields) {
	first, last, ok := strings.Cut(f["functions"], "-")
	if !ok {
		last = first
	}
	var out framesNote
	var err1, err2 error
	out.first, err1 = strconv.ParseUint(first, 10, 64)
	out.last, err2 = strconv.ParseUint(last, 10, 64)
	if err1 != nil || err2 != nil {
		return
	}
	out.kind, out.class = profile.ParseKind(f["kind"]), profile.ParseClass(f["class"])
	out.inlined = inlining(max(0, slices.Index(inlinedWords[:], f["inlined"])))
	out.mapping, out.moved = f["mapping"], false
	if _, ok := f["mapping"]; ok {
		out.moved = true
	}
	n.frames = append(n.frames, out)
}

// fields are the key=value pairs of one note.
type fields map[string]string

func (f fields) number(key string) int64 {
	v, _ := strconv.ParseInt(f[key], 10, 64)
	return v
}

func (f fields) duration(key string) time.Duration { return time.Duration(f.number(key)) }

func (f fields) exact() profile.Exact {
	return profile.Exact{CPU: f.duration("cpu_ns"), User: f.duration("user_ns"), System: f.duration("system_ns"),
		Wall: f.duration("wall_ns"), RunQueue: f.duration("run_queue_ns"), Bytes: f.number("bytes"),
		Source: f["source"], IncludesInterrupt: f["interrupt"] == "true"}
}

func (f fields) rate() profile.Rate {
	hertz, err := strconv.ParseFloat(f["hertz"], 64)
	if err != nil || !(hertz >= 0) || math.IsInf(hertz, 0) { // which others may have written
		hertz = 0
	}
	return profile.Rate{Hertz: hertz, Policy: f["policy"], Reason: f["reason"], Why: f["why"], By: f["by"]}
}

func parseFields(s string) (fields, error) {
	f := fields{}
	for s = strings.TrimLeft(s, " "); s != ""; s = strings.TrimLeft(s, " ") {
		key, rest, err := cutWord(s, "= ")
		if err != nil || !strings.HasPrefix(rest, "=") {
			return nil, fmt.Errorf("no key=value at %q", s)
		}
		if f[key], s, err = cutWord(rest[1:], " "); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// cutWord takes a bare word, up to a stop character, or a quoted one.
func cutWord(s, stop string) (word, rest string, err error) {
	if strings.HasPrefix(s, `"`) {
		quoted, err := strconv.QuotedPrefix(s)
		if err != nil {
			return "", "", fmt.Errorf("open quote in %q: %w", s, err)
		}
		word, err = strconv.Unquote(quoted)
		return word, s[len(quoted):], err
	}
	if i := strings.IndexAny(s, stop); i >= 0 {
		return s[:i], s[i:], nil
	}
	return s, "", nil
}
