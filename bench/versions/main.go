// Command versions runs a benchmark of two checkouts in turns, and compares what they print.
//
//	go run ./bench/versions -before ../old -rounds 20 inside -rounds 1
//
// builds bench/inside of ../old and of this tree, runs both with -rounds 1, the first of the two
// drawn anew each round, and pairs each number of their tables.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"atys.dev/atys/bench/harness"
)

var (
	before = flag.String("before", "", "the other checkout")
	rounds = flag.Int("rounds", 20, "pairs of runs")
)

func main() { harness.Main(run) }

func run(ctx context.Context, dir string) error {
	if *before == "" || flag.NArg() == 0 {
		return errors.New("want -before CHECKOUT, the name of a benchmark, and its arguments")
	}
	var sides [2]side
	for i, checkout := range []string{*before, "."} {
		sides[i] = side{checkout: checkout, program: filepath.Join(dir, fmt.Sprint(i), flag.Arg(0)), figures: map[figure][]float64{}}
		if err := sides[i].build(ctx); err != nil {
			return err
		}
	}
	for round := range *rounds {
		for _, i := range rand.Perm(2) {
			if err := sides[i].run(ctx, flag.Args()[1:]); err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, sides[i].checkout, err)
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, *rounds)
	}
	return report(&sides)
}

// side is one of the two that are compared.
type side struct {
	checkout, program string
	order             []figure // as the table has them
	figures           map[figure][]float64
}

func (s *side) build(ctx context.Context) error {
	program, err := filepath.Abs(s.program)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "./bench/"+filepath.Base(s.program))
	cmd.Dir = s.checkout
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s of %s: %w: %s", filepath.Base(s.program), s.checkout, err, out)
	}
	return nil
}

// run runs the benchmark once, and adds its figures.
func (s *side) run(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Dir = s.checkout
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	for _, f := range figures(out.String()) {
		if _, known := s.figures[f.figure]; !known {
			s.order = append(s.order, f.figure)
		}
		s.figures[f.figure] = append(s.figures[f.figure], f.value)
	}
	return nil
}

func report(sides *[2]side) error {
	harness.Header()
	var t harness.Table
	t.Row("figure", "before", "after", "after against before")
	compared := 0
	for _, f := range sides[1].order {
		old, new := sides[0].figures[f], sides[1].figures[f]
		if len(old) != *rounds || len(new) != *rounds {
			fmt.Fprintf(os.Stderr, "%s is left out: it is in %d tables before, %d after, of %d each\n", f, len(old), len(new), *rounds)
			continue
		}
		compared++
		t.Row(f.String(), harness.Middle(old, f.unit), harness.Middle(new, f.unit), harness.Ratio(new, old))
	}
	if compared == 0 {
		return errors.New("no figure is in the tables of both checkouts in each round")
	}
	return t.Print()
}
