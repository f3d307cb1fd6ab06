package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"atys.dev/atys/internal/profile"
)

// Summary is what of a window decides how an agent fares.
type Summary struct {
	End       time.Time     // of the window
	Length    time.Duration // of it
	Delay     time.Duration // from its end until it was sealed and safe
	Samples   int64
	Truncated map[profile.End]int64 // samples whose stacks were cut, by why,
	Services  map[string]int64      // and by service
	Exact     time.Duration         // CPU time by the kernel's accounts
	Unsampled time.Duration         // of that, what samples fall short of beyond chance
}

// Summarize looks at the windows that were cut of one recording for one edge, which
// were sealed at a time.
func Summarize(parts []*profile.Window, sealed time.Time) Summary {
	s := Summary{Truncated: map[profile.End]int64{}, Services: map[string]int64{}}
	for _, w := range parts {
		if end := w.Start.Add(w.Duration); end.After(s.End) {
			s.End = end
		}
		s.Length = max(s.Length, w.Duration)
		s.Exact += w.Exact.CPU
		s.Unsampled += time.Duration(w.LossOf(profile.LossUnsampled).Value)
		for _, r := range w.Rows.All() {
			s.Samples += r.N
			if end := w.Stacks[r.Stack].End; end.Truncated() {
				s.Truncated[end] += r.N
				s.Services[w.Target[serviceLabel]] += r.N
			}
		}
	}
	s.Delay = max(sealed.Sub(s.End), 0)
	return s
}

// serviceLabel is the label of a target that names its service.
const serviceLabel = "service"

// patience is how late even the shortest window may be.
const patience = 5 * time.Second

// late tells whether a window was sealed more than its own length after its end: by
// then the next one is due.
func (s Summary) late() bool { return s.Delay > max(s.Length, patience) }

func (s *Summary) add(o Summary) {
	s.Samples += o.Samples
	s.Exact += o.Exact
	s.Unsampled += o.Unsampled
	if s.Truncated == nil {
		s.Truncated, s.Services = map[profile.End]int64{}, map[string]int64{}
	}
	for end, n := range o.Truncated {
		s.Truncated[end] += n
	}
	for service, n := range o.Services {
		s.Services[service] += n
	}
}

func (s *Summary) truncated() (n int64) {
	for _, of := range s.Truncated {
		n += of
	}
	return n
}

// worst returns the service with the most truncated stacks and its share of them, as the
// end of a message; empty: no service is known.
func (s *Summary) worst() string {
	name, most := "", int64(0)
	for service, n := range s.Services {
		if service != "" && (n > most || n == most && service < name) {
			name, most = service, n
		}
	}
	if name == "" {
		return ""
	}
	return fmt.Sprintf("; %s of them in %s", percent(float64(most)/float64(s.truncated())), name)
}

// byCount orders ends by how many stacks they cut.
func byCount(of map[profile.End]int64) []profile.End {
	return slices.SortedFunc(maps.Keys(of), func(a, b profile.End) int {
		return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b))
	})
}

// reasons lists why stacks were cut, the commonest first.
func reasons(of map[profile.End]int64, samples int64) string {
	var all []string
	for _, end := range byCount(of) {
		all = append(all, fmt.Sprintf("%s %s", percent(float64(of[end])/float64(samples)), end))
	}
	return listed(all)
}

// fixes tell for the commonest ends what can be done.
var fixes = map[profile.End]string{
	profile.EndTooDeep:    "deep recursion: only the innermost frames are kept",
	profile.EndNoUnwind:   "install the program's debug information, or build it with .eh_frame (-fasynchronous-unwind-tables): frame pointers alone are not followed",
	profile.EndNoMapping:  "code made at run time: \"atys targets\" says what its runtime needs",
	profile.EndUnreadable: "stacks are swapped out: the machine is short of memory",
	profile.EndStarting:   "processes that live for milliseconds; nothing needs to be done",
	profile.EndParked:     "virtual threads: their older frames are in the heap",
	profile.EndEvicted:    "give unwinding tables more room: --unwind-memory",
	profile.EndNoRoom:     "too many executables are sampled at once: record fewer of them",
	profile.EndNotLoaded:  "processes have just started, or tables wait for CPU time: raise --max-cpu if it stays",
	profile.EndLost:       "lower the frequency, or shorten the profile's window",
}

// fixFor gives the way out of what cuts most stacks.
func fixFor(of map[profile.End]int64) string {
	all := byCount(of)
	if fix, known := fixes[all[0]]; known {
		return fix
	}
	return "\"atys targets\" and \"atys doctor\" say what is missing for which process"
}
