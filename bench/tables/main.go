// Command tables measures stacks where the unwinding tables of what runs have a quarter of the room that they would take, and all of it stays mapped.
//
//	copies of large files of this machine, each with a build-id of its own (plan.go)
//	   -> a process each that runs known chains of calls in its copy (driver.c)
//	   -> one after another, or many at once (measure.go)
//	   -> how many stacks are whole, of the worst file too; and whether each whole one is a chain that was run
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"atys.dev/atys/bench/harness"
)

var (
	files     = flag.Int("n", 60, "files")
	part      = flag.Float64("room", 0.25, "room for rows, as a part of what all files have")
	turn      = flag.Duration("turn", 3*time.Second, "length of a turn of one file")
	settle    = flag.Duration("settle", time.Second, "what is not counted at the beginning of a turn")
	rounds    = flag.Int("rounds", 1, "turns of each file")
	atOnce    = flag.Int("runnable", 40, "files that run at once")
	together  = flag.Duration("d", 60*time.Second, "how long they do")
	warm      = flag.Duration("warm", 0, "what is not counted of that")
	frequency = flag.Float64("F", 99, "samples a second and CPU")
	functions = flag.Int("functions", 400, "functions of each file that chains are made of")
	chains    = flag.Int("chains", 64, "chains of each file")
	seed      = flag.Uint64("seed", 1, "of what is chosen at random")
	keep      = flag.String("dir", "", "directory for the copies; else one that is removed")
)

//go:embed testdata/driver.c
var driver []byte

func main() { harness.Main(run) }

func run(ctx context.Context, dir string) error {
	switch {
	case *files < 1 || *atOnce > *files:
		return fmt.Errorf("-n %d -runnable %d: want at least one file, and no more at once than there are", *files, *atOnce)
	case *turn <= *settle:
		return fmt.Errorf("-turn %v -settle %v: nothing would be counted", *turn, *settle)
	}
	if *keep != "" {
		dir = *keep
	}
	program, err := buildDriver(dir)
	if err != nil {
		return err
	}
	r := mathrand.New(mathrand.NewPCG(*seed, 0))
	all, err := makeFiles(dir, r)
	if err != nil {
		return err
	}
	b := &bench{files: all}
	defer b.close()
	if err := b.start(ctx, program); err != nil {
		return err
	}
	return b.measure(ctx)
}

func buildDriver(dir string) (string, error) {
	out := filepath.Join(dir, "driver")
	c := exec.Command("gcc", "-O2", "-g", "-Wall", "-x", "c", "-", "-o", out)
	c.Stdin = strings.NewReader(string(driver))
	if text, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the driver: %w: %s", err, text)
	}
	return out, nil
}

// originals are where large files are looked for.
var originals = []string{
	"/root/.cache/atys/runtimes/*/bin/node", "/usr/bin/node",
	"/usr/lib/jvm/*/lib/server/libjvm.so", "/root/.cache/atys/runtimes/*/lib/server/libjvm.so",
	"/usr/lib/x86_64-linux-gnu/libLLVM*.so*", "/usr/lib/x86_64-linux-gnu/libclang-cpp.so*", "/usr/lib/chromium/chromium",
}

// makeFiles makes the copies, of each original as many.
func makeFiles(dir string, r *mathrand.Rand) (all []*file, err error) {
	var carriers []*carrier
	seen := map[string]bool{}
	for _, pattern := range originals {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if path, err = filepath.EvalSymlinks(path); err != nil || seen[path] {
				continue
			}
			seen[path] = true
			c, err := readCarrier(path, r)
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s is left out: %v\n", path, err)
				continue
			}
			fmt.Fprintf(os.Stderr, "%s: %d rows\n", path, c.rows)
			carriers = append(carriers, c)
		}
	}
	if len(carriers) == 0 {
		return nil, fmt.Errorf("no file of %d rows or more in any of %s", leastRows, strings.Join(originals, ", "))
	}
	for i := range *files {
		c := carriers[i%len(carriers)]
		f, err := c.copyTo(filepath.Join(dir, fmt.Sprintf("%02d-%s", i, filepath.Base(c.path))), *functions, *chains, r)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}
