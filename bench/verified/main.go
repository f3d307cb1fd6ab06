// Command verified tells what the kernel must prove of each BPF program before it may run: instructions, stack, time.
//
//	every *_bpfel.o below internal, or the files named -> one program at a time, all its options on
//	   -> loaded with the verifier's statistics -> a table
//
// A build of it needs nothing beside the objects: it runs on any kernel, so
// older ones can be asked too (test/kernels boots them).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/bpf"
)

var verbose = flag.Bool("v", false, "where a program is refused, print all the verifier said")

func main() { harness.Main(run) }

func run(ctx context.Context, dir string) error {
	objects := flag.Args()
	if len(objects) == 0 {
		var err error
		if objects, err = find("internal"); err != nil {
			return err
		}
	}
	if err := bpf.RaiseLimits(); err != nil {
		return err
	}
	harness.Header()
	var t harness.Table
	t.Row("object", "program", "its instructions", "verified instructions", "states at most", "deepest frame of stack, bytes", "time")
	for _, object := range objects {
		if err := verify(&t, object); err != nil {
			return err
		}
	}
	return t.Print()
}

// find lists the objects below a folder.
func find(dir string) (objects []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_bpfel.o") {
			objects = append(objects, path)
		}
		return err
	})
	if err == nil && len(objects) == 0 {
		err = fmt.Errorf("no BPF objects below %q: run this from the top of the tree, or name some", dir)
	}
	return objects, err
}

// verify adds a row for each program of an object.
func verify(t *harness.Table, object string) error {
	spec, err := ebpf.LoadCollectionSpec(object)
	if err != nil {
		return fmt.Errorf("read %s: %w", object, err)
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
		said, err := load(spec.Copy(), name)
		if err != nil {
			t.Row(filepath.Dir(object), name, fmt.Sprint(len(spec.Programs[name].Instructions)), "refused", "", "", "")
			explain(name, err)
			continue
		}
		t.Row(filepath.Dir(object), name, fmt.Sprint(len(spec.Programs[name].Instructions)),
			one(said, `processed (\d+) insns`), one(said, `peak_states (\d+)`), deepest(said), one(said, `verification time (\d+ usec)`))
	}
	return nil
}

// explain tells on standard error why a program was refused.
func explain(name string, err error) {
	var said *ebpf.VerifierError
	if *verbose && errors.As(err, &said) {
		fmt.Fprintf(os.Stderr, "%s: %+v\n", name, said)
		return
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
}

// load loads one program of an object, and gives the verifier's statistics.
func load(spec *ebpf.CollectionSpec, name string) (said string, err error) {
	maps.DeleteFunc(spec.Programs, func(other string, _ *ebpf.ProgramSpec) bool { return other != name })
	for option, v := range spec.Variables {
		if strings.HasPrefix(option, "with_") { // else what it adds is not proven
			if err := v.Set(uint32(1)); err != nil {
				return "", fmt.Errorf("set %s: %w", option, err)
			}
		}
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.Programs[name].VerifierLog, nil
}

// deepest gives the most stack that one function takes; those that call each
// other add up, to at most 512 bytes.
func deepest(said string) string {
	most := 0
	for _, depth := range strings.Split(one(said, `stack depth ([\d+]+)`), "+") {
		if n, err := strconv.Atoi(depth); err == nil {
			most = max(most, n)
		}
	}
	return strconv.Itoa(most)
}

// one gives what an expression finds in the verifier's words; older kernels say less.
func one(said, expression string) string {
	found := regexp.MustCompile(expression).FindStringSubmatch(said)
	if found == nil {
		return "not told"
	}
	return found[1]
}
