// Package victims builds and runs the programs that tests and benchmarks profile: they burn CPU in known functions and log how much.
//
// Build compiles one from the sources in this package with the system's
// compilers; Start runs it up to its ready line; Stop ends it and gives its
// log, which test/truth reads. README.md lists the victims.
package victims

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed src
var sources embed.FS

// Options shape a build. The zero value is -O2 without frame pointers,
// position-independent, dynamically linked, with symbols and without debug
// information.
type Options struct {
	FramePointers bool
	Debug         bool // -g
	Strip         bool // no .symtab
	Static        bool
	Musl          bool     // static against musl, by musl-gcc
	Flags         []string // more for the compiler
}

// recipe says what a victim is made of.
type recipe struct {
	sources []string // of src; victim.c is added
	defines []string
	plugins map[string][]string // shared libraries beside it, by suffix: their defines
}

var recipes = map[string]recipe{
	"burn25":       {sources: []string{"burn25.c"}},
	"deep":         {sources: []string{"deep.c"}},
	"deleted":      {sources: []string{"gone.c", "mixed.c"}, defines: []string{"PART"}},
	"dlopener":     {sources: []string{"dlopener.c"}, plugins: map[string][]string{"first": nil, "second": {"SECOND"}}},
	"forkstorm":    {sources: []string{"forkstorm.c"}},
	"gopher":       {},
	"idle":         {sources: []string{"idle.c"}},
	"lockstep":     {sources: []string{"periodic.c"}, defines: []string{`NAME="lockstep"`, "PERIOD_US=10000", "SLEEP"}},
	"manymaps":     {sources: []string{"manymaps.c"}},
	"memfd":        {sources: []string{"gone.c", "mixed.c"}, defines: []string{"PART", "MEMFD"}},
	"mixed":        {sources: []string{"mixed.c"}},
	"periodic10ms": {sources: []string{"periodic.c"}, defines: []string{`NAME="periodic10ms"`, "PERIOD_US=10000"}},
	"recursive":    {sources: []string{"recursive.c"}},
	"resonant1ms":  {sources: []string{"periodic.c"}, defines: []string{`NAME="resonant1ms"`, "PERIOD_US=1000"}},
	"rusty":        {sources: []string{"rusty.rs"}},
	"shortlived":   {sources: []string{"shortlived.c"}},
	"signals":      {sources: []string{"signals.c"}},
	"tailcall":     {sources: []string{"tailcall.c"}},
	"threads50":    {sources: []string{"threads.c"}},
	"throwing":     {sources: []string{"throwing.cc"}},
}

// Names lists the victims.
func Names() []string {
	names := make([]string, 0, len(recipes))
	for name := range recipes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Build compiles a victim into dir and gives the path of its executable.
func Build(dir, name string, o Options) (string, error) {
	r, ok := recipes[name]
	if !ok {
		return "", fmt.Errorf("no victim %q; there are %s", name, strings.Join(Names(), ", "))
	}
	out := filepath.Join(dir, name)
	if name == "gopher" {
		return out, buildGo(out, o)
	}
	src, err := os.MkdirTemp(dir, name+"-src-")
	if err != nil {
		return "", fmt.Errorf("build victim %q: %w", name, err)
	}
	defer os.RemoveAll(src)
	if err := unpack(src); err != nil {
		return "", fmt.Errorf("build victim %q: %w", name, err)
	}
	if name == "rusty" {
		return out, buildRust(src, out, o)
	}
	compiler := o.compiler()
	if filepath.Ext(r.sources[0]) == ".cc" {
		if o.Musl {
			return "", fmt.Errorf("build victim %q: there is no C++ compiler for musl", name)
		}
		// The log is C: an object, or its designated initialisers fail as C++.
		if err := run(src, o.compiler(), append(o.flags(), "-c", "victim.c", "-o", "victim.o")...); err != nil {
			return "", err
		}
		compiler = "g++"
		err = run(src, compiler, append(o.flags(), r.sources[0], "victim.o", "-o", out)...)
		return out, err
	}
	args := append(o.flags(), defines(r.defines)...)
	args = append(args, r.sources...)
	args = append(args, "victim.c", "-o", out, "-pthread")
	if err := run(src, compiler, args...); err != nil {
		return "", err
	}
	for suffix, d := range r.plugins {
		args := append(o.flags(), defines(d)...)
		args = append(args, "-shared", "-fPIC", "plugin.c", "-o", out+"-"+suffix+".so")
		if err := run(src, compiler, args...); err != nil {
			return "", err
		}
	}
	return out, nil
}

func (o Options) compiler() string {
	if o.Musl {
		return "musl-gcc"
	}
	return "gcc"
}

func (o Options) flags() []string {
	flags := []string{"-O2", "-Wall", "-Wextra", "-Werror", "-fomit-frame-pointer"}
	if o.FramePointers {
		flags[4] = "-fno-omit-frame-pointer"
	}
	if o.Debug {
		flags = append(flags, "-g")
	}
	if o.Strip {
		flags = append(flags, "-s")
	}
	if o.Static || o.Musl {
		flags = append(flags, "-static")
	}
	return append(flags, o.Flags...)
}

func defines(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = "-D" + n
	}
	return out
}

// buildRust links the C log into the Rust program.
func buildRust(src, out string, o Options) error {
	if err := run(src, "gcc", "-O2", "-fPIC", "-c", "victim.c", "-o", "victim.o"); err != nil {
		return err
	}
	args := []string{"-O", "--edition", "2021", "rusty.rs", "-C", "link-arg=victim.o", "-o", out}
	if o.FramePointers {
		args = append(args, "-C", "force-frame-pointers=yes")
	}
	if o.Debug {
		args = append(args, "-g")
	}
	if o.Strip {
		args = append(args, "-C", "strip=symbols")
	}
	if o.Static || o.Musl {
		return fmt.Errorf("build victim \"rusty\": only the dynamically linked one is built")
	}
	return run(src, "rustc", append(args, o.Flags...)...)
}

// buildGo builds the Go program; it runs in this module, as tests and benchmarks do.
func buildGo(out string, o Options) error {
	args := []string{"build", "-o", out}
	if o.Strip {
		args = append(args, "-ldflags=-s -w")
	}
	args = append(args, o.Flags...)
	return run("", "go", append(args, "atys.dev/atys/test/victims/gopher")...)
}

// unpack writes the sources where compilers find them.
func unpack(dir string) error {
	entries, err := sources.ReadDir("src")
	if err != nil {
		return err
	}
	for _, e := range entries {
		text, err := sources.ReadFile("src/" + e.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// run runs a compiler; its words become the error.
func run(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile victim: %s %s: %w\n%s", name, strings.Join(args, " "), err, output)
	}
	return nil
}
