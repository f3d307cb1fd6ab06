package external

import (
	"io"
	"regexp"
	"strings"

	"atys.dev/atys/internal/profile"
)

// readCollapsed reads what async-profiler writes with collapsed,threads,ann:
//
//	[http-1 tid=398];java/lang/Thread.run_[1];com/shop/Cart.add_[j];vfs_read_[k] 55
//
// root first. The marks say how a frame runs; Java's have one, native frames
// have none. Classes are written with slashes, as inside the JVM.
func readCollapsed(r io.Reader, pid int, process string, o textOptions) (*profile.Window, error) {
	b := profile.NewBuilder(profile.Head{Types: cpuTypes(o.period)})
	err := eachLine(r, func(line string, count int64) error {
		t, frames := cutJavaThread(line)
		t.PID, t.Process = pid, process
		ids := make([]profile.LocationID, 0, strings.Count(frames, ";")+1)
		end := profile.EndUnknown
		for frames != "" {
			var frame string
			frame, frames, _ = strings.Cut(frames, ";")
			if e := unwalkable(frame); e != profile.EndUnknown {
				end = e
				continue
			}
			ids = append(ids, collapsedLocation(b, frame))
		}
		if len(ids) >= javaDepth {
			end = profile.EndTooDeep
		}
		addRow(b, o, t, ids, end, count)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b.Window(), nil
}

var javaThread = regexp.MustCompile(` tid=(\d+)\](?:;|$)`)

// cutJavaThread cuts "[name tid=9];" off a stack. A name may hold anything.
func cutJavaThread(line string) (t profile.Thread, frames string) {
	m := javaThread.FindStringSubmatchIndex(line)
	if m == nil || line[0] != '[' {
		return t, line
	}
	t.Name, t.TID = line[1:m[0]], number(line[m[2]:m[3]])
	return t, line[m[1]:]
}

// unwalkable tells what a frame that stands for missing ones says of the walk;
// EndUnknown for every other frame.
func unwalkable(frame string) profile.End {
	switch frame {
	case "[unknown_Java]", "[unknown_not_Java]", "[not_walkable_Java]", "[not_walkable_not_Java]",
		"[unknown_state]", "[no_Java_frame]", "[deoptimization]", "[stale_jmethodID]", "[GC_active]":
		return profile.EndUnsupport
	case "[storage_overflow]":
		return profile.EndLost
	}
	if strings.HasPrefix(frame, "[break_") {
		return profile.EndUnsupport
	}
	return profile.EndUnknown
}

// The marks of frames, and what they say.
var collapsedMarks = map[string]profile.Frame{
	"_[j]": {Kind: profile.KindJavaCompiled},
	"_[1]": {Kind: profile.KindJavaCompiled}, // by the first tier
	"_[i]": {Kind: profile.KindJavaCompiled, Inlined: true},
	"_[0]": {Kind: profile.KindJavaInterpreted},
	"_[k]": {Kind: profile.KindKernel},
}

func collapsedLocation(b *profile.Builder, text string) profile.LocationID {
	f := profile.Frame{Function: text, Kind: profile.KindNative}
	if n := len(text); n > len("_[j]") {
		if marked, ok := collapsedMarks[text[n-len("_[j]"):]]; ok {
			f.Kind, f.Inlined, f.Function = marked.Kind, marked.Inlined, text[:n-len("_[j]")]
		}
	}
	if f.Kind == profile.KindJavaCompiled || f.Kind == profile.KindJavaInterpreted {
		f.Function = strings.ReplaceAll(f.Function, "/", ".")
	}
	if f.Function == "" {
		f.Function = "[unknown]"
	}
	loc := profile.Location{Kind: f.Kind, Name: f.Function}
	if f.Inlined {
		loc.Name += " (inlined)" // elsewhere it is a function of its own
	}
	return b.Location(loc, f)
}
