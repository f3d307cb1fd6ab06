// Command sampled checks that sampled CPU time agrees with exact CPU time, at each rate, for short-lived and briefly running tasks, alone and beside busy programs.
//
//	cells (cells.go): victim x rate x neighbours
//	   -> atys record, repeated until a cell has enough samples (measure.go)
//	   -> weight of the samples / exact CPU time of the same recordings, with its interval (report.go)
//
// The exact time is the kernel's, as stored in each profile. A cell that is in the
// results file is not measured again, so an interrupted run resumes where it stopped.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"time"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/test/process"
	"atys.dev/atys/test/victims"
)

var (
	rates   = flag.String("F", "99,499,999,4999", "frequencies")
	samples = flag.Int64("samples", 10_000, "samples that each cell is measured to")
	limit   = flag.Duration("limit", 5*time.Minute, "time that each cell may take: it is judged by what it has then")
	cells   = flag.String("cells", "", "regular expression of the cells to measure, such as \"^(threads|pool)-.* 499 Hz\"; empty: all")
	other   = flag.String("old", "", "another atys to measure too, such as one of an older commit")
	results = flag.String("results", "", "file that keeps what is measured, and what is not measured again; empty: none")
	list    = flag.Bool("list", false, "only list the cells")
)

func main() { harness.Main(run) }

func run(ctx context.Context, dir string) error {
	if flag.NArg() > 0 || *samples < 1 || *limit < 10*time.Second {
		return errors.New("-samples is 1 or more, -limit 10s or more, and there are no arguments")
	}
	chosen, err := regexp.Compile(*cells)
	if err != nil {
		return fmt.Errorf("-cells: %w", err)
	}
	all, err := plan(*rates, chosen)
	if err != nil {
		return err
	}
	if *list {
		for _, c := range all {
			fmt.Println(c)
		}
		return nil
	}
	done, err := openResults(*results)
	if err != nil {
		return err
	}
	defer done.close()
	b := bench{dir: dir, programs: map[string]string{}}
	if b.programs[newProgram], err = process.Build(ctx, dir); err != nil {
		return err
	}
	if *other != "" {
		b.programs[oldProgram] = *other
	}
	if b.victim, err = victims.Build(dir, "shortlived", victims.Options{}); err != nil {
		return err
	}
	failed := b.measure(ctx, all, done)
	return errors.Join(report(all, done), failed)
}

// Names of the programs that are compared.
const (
	newProgram = "atys"
	oldProgram = "old"
)
