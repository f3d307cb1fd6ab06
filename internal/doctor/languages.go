package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"atys.dev/atys/internal/lang"
	"atys.dev/atys/internal/proc"
	"atys.dev/atys/internal/symbol"
)

// gatherRuntimes finds what runs in a process, and what it has written of the
// code that it made.
func (p *Process) gatherRuntimes(procfs proc.FS) {
	detector := lang.Detector{FS: procfs}
	var err error
	if p.Runtimes, err = detector.Detect(p.PID); err != nil {
		p.Unknown = err.Error()
	}
	if _, err := symbol.FindJITDump(procfs, "/proc", p.PID); err == nil {
		p.Names = "jitdump"
		return
	}
	switch err := symbol.PerfMapOf(p.PID).Refresh(); {
	case err == nil:
		p.Names = "perf map"
	case !errors.Is(err, fs.ErrNotExist):
		p.Wrong = err.Error()
	}
}

// languages tells of each runtime how its functions are shown.
func (p *Process) languages() (checks []Check) {
	if p.Unknown != "" {
		return []Check{{Name: "languages", State: Limited, Found: "not known: " + p.Unknown, Cost: "functions of their programs may be missing"}}
	}
	for _, r := range p.Runtimes {
		c := Check{Name: "languages", State: OK, Found: titleOf(r)}
		switch {
		case isCompiled(r):
		case r.Walked:
			c.Found += ": its frames are walked in the kernel"
		default:
			c.Found += ": its frames are not walked"
		}
		if r.Why != "" {
			c.State, c.Cost, c.Mend = Limited, r.Why, p.wayOut(r)
		}
		checks = append(checks, c)
	}
	return checks
}

// titleOf tells which runtime it is, whose, and where: "python 3.11.2 of CPython
// in libpython3.11.so.1.0".
func titleOf(r lang.Runtime) string {
	title := r.Name()
	if isCompiled(r) {
		return title
	}
	if !strings.Contains(strings.ToLower(title), strings.ToLower(r.Vendor)) {
		title += " of " + r.Vendor
	}
	return title + " in " + path.Base(r.Path)
}

// isCompiled tells programs whose functions are native ones.
func isCompiled(r lang.Runtime) bool { return r.Kind == lang.Go || r.Kind == lang.Native }

// wayOut tells how what is missing of a runtime can be had; empty: not by
// anything that is known here.
func (p *Process) wayOut(r lang.Runtime) string {
	switch {
	case r.Kind == lang.DotNet && r.Walked:
		return fmt.Sprintf("atys record --allow-attach -p %d: the runtime is asked for the names", p.PID)
	case r.Walked, isCompiled(r), p.isUnread(r.Path):
		return ""
	case r.Kind == lang.HotSpot:
		return fmt.Sprintf("atys record --kernel async-profiler --allow-attach -p %d", p.PID)
	case r.Kind == lang.Python && r.Vendor == "CPython" && r.Feature != "free-threaded":
		return fmt.Sprintf("atys record --kernel py-spy -p %d, as far as your py-spy knows this version", p.PID)
	case r.Kind == lang.PHP && strings.Contains(r.Feature, "ZTS"):
		return "run the build that is not for threads (NTS): php-fpm and the command line need no other"
	case r.Kind == lang.Perl && r.Feature != "ithreads":
		return "run a perl that was configured with -Dusethreads, as distributions build it"
	case r.Lacks != "":
		return "run a build that was not stripped"
	}
	return ""
}

// isUnread tells of a file that could not be read, which is told elsewhere.
func (p *Process) isUnread(path string) bool {
	for _, f := range p.Files {
		if f.Path == path {
			return f.Err != ""
		}
	}
	return false
}

// made tells of code that was made at run time: of a runtime that is walked,
// or by what the process writes of it.
func (p *Process) made() Check {
	c := Check{Name: "code made at run time", State: OK, Found: "none"}
	if p.Made == 0 {
		return c
	}
	c.Found = fmt.Sprintf("room for %d kB", p.Made>>10)
	var walked, cut []string
	for _, r := range p.Runtimes {
		switch {
		case isCompiled(r):
		case r.Walked && compiles(r):
			walked = append(walked, r.Name())
		case !r.Walked:
			cut = append(cut, r.Name())
		}
	}
	if len(walked) > 0 && len(cut) == 0 {
		c.Found += ", walked as that of " + join(walked)
		return c
	}
	c.State, c.Cost = Limited, "stacks may be cut there, and are marked then"
	switch {
	case p.Names != "":
		c.Found += ", named by the " + p.Names + " of the process"
		return c
	case p.Wrong != "":
		c.Found += ", with a perf map that is not read: " + p.Wrong
	default:
		c.Found += ", without a perf map or jitdump"
	}
	c.Cost = "it has no names; " + c.Cost
	c.Mend = p.perfMapOption()
	return c
}

// compiles tells whether a runtime makes code as it runs, which is walked with
// it.
func compiles(r lang.Runtime) bool {
	switch r.Kind {
	case lang.HotSpot, lang.Node, lang.DotNet, lang.BEAM:
		return true
	case lang.PHP:
		return strings.Contains(r.Feature, "JIT")
	}
	return false
}

// perfMapOption tells how a runtime that is not walked is made to write its map.
func (p *Process) perfMapOption() string {
	for _, r := range p.Runtimes {
		if r.Walked {
			continue
		}
		switch r.Kind {
		case lang.Node:
			return "start it as: node --perf-basic-prof"
		case lang.Deno:
			return "start it as: deno run --v8-flags=--perf-basic-prof"
		case lang.HotSpot:
			return fmt.Sprintf("jcmd %d Compiler.perfmap", p.PID)
		case lang.OpenJ9:
			return "start it as: java -Xjit:perfTool"
		case lang.DotNet:
			return "start it with: DOTNET_PerfMapEnabled=1 (before .NET 6: COMPlus_PerfMapEnabled=1)"
		case lang.Mono:
			return "start it as: mono --jitmap"
		}
	}
	return "have what makes it write a map for perf, if it can"
}
