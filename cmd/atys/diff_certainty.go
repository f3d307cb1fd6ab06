package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/stats"
)

// writeCertainty says how many changes are more than chance, which would have
// been found, and what the largest that could be chance needs to be sure.
func writeCertainty(w io.Writer, tree *profile.Tree, changes []change, family stats.Family) {
	before, after := tree.Root.Total[0], tree.Root.Total[1]
	if len(changes) == 0 || !estimated(before, tree.Columns[0].Head.Design) || !estimated(after, tree.Columns[1].Head.Design) {
		return
	}
	fmt.Fprintf(w, "\n%s of %s changed beyond chance", render.Count(int64(family.Found)), counted(family.Tested, "tested function"))
	if untested := family.Compared - family.Tested; untested > 0 {
		fmt.Fprintf(w, "; of %s more no change could be found", render.Count(int64(untested)))
	}
	fmt.Fprintln(w)
	var found []string
	for _, share := range []float64{0.01, 0.1} {
		if rise, _ := stats.Detectable(share, stats.Side{Whole: sums(before)}, stats.Side{Whole: sums(after)}, family.Level); rise > 0 {
			found = append(found, fmt.Sprintf("by %s points from %s", strings.TrimPrefix(point(rise), "+"), render.Share(share)))
		}
	}
	if len(found) > 0 {
		fmt.Fprintf(w, "a rise would be found, 4 times of 5, %s\n", strings.Join(found, ", "))
	}
	for i := range changes {
		if c := &changes[i]; !c.Significant() && c.Difference.Value != 0 {
			writeNeed(w, tree, c, family.Level)
			break
		}
	}
}

// farFromFound is how many times as many samples are too many to ask for: such a
// change is as good as none.
const farFromFound = 1e4

// writeNeed says what a change needs to be found, were it as large as it looks.
func writeNeed(w io.Writer, tree *profile.Tree, c *change, level float64) {
	before, after := tree.Root.Total[0], tree.Root.Total[1]
	times := stats.Needed(c.Before.Value, c.After.Value, sideOf(tree, 0, c.Total[0]), sideOf(tree, 1, c.Total[1]), level)
	if times > farFromFound || times < 1 { // as large as it looks it would mostly be found
		return
	}
	more := times - 1
	fmt.Fprintf(w, "the largest that could be chance, %s of %s, needs %s more samples to be found", point(c.Difference.Value),
		render.Printable(c.Frame.Function), render.Count(int64(math.Ceil(more*float64(before.N+after.N)))))
	if a, b := tree.Columns[0].Head.Duration, tree.Columns[1].Head.Duration; a > 0 && b > 0 {
		fmt.Fprintf(w, ", %s more before and %s after", longer(a, more), longer(b, more))
	}
	fmt.Fprintln(w)
}

// longer is so many times a duration.
func longer(d time.Duration, times float64) string {
	return render.Value(math.Ceil(times*d.Seconds()), "seconds")
}

// counted is a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return render.Count(int64(n)) + " " + thing + "s"
}
