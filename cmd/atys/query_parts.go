package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"atys.dev/atys/internal/render"
	"atys.dev/atys/internal/wire/atysv1"
)

// partRows are the parts of a selection: steps in the order of time, and within one
// step, or where there are none, the largest first. People read values with their
// units; programs get numbers.
func partRows(r *atysv1.SplitResponse, asked *atysv1.SplitRequest, people bool) [][]string {
	slices.SortStableFunc(r.GetParts(), func(a, b *atysv1.Part) int {
		return cmp.Or(cmp.Compare(a.GetStartUnixNano(), b.GetStartUnixNano()), cmp.Compare(b.GetValue(), a.GetValue()), cmp.Compare(a.GetBy(), b.GetBy()))
	})
	rows := [][]string{partHead(asked)}
	known := newestOf(r.GetCoverage())
	for _, p := range r.GetParts() {
		var row []string
		lasts := stepLasts(p, asked, known)
		if asked.GetStepNs() > 0 {
			row = append(row, time.Unix(0, p.GetStartUnixNano()).UTC().Format(time.RFC3339), lastsCell(lasts, time.Duration(asked.GetStepNs())))
		}
		if asked.GetBy() != "" {
			row = append(row, cmp.Or(p.GetBy(), "-"))
		}
		row = append(row, valueCell(p.GetValue(), asked.GetSelection().GetKind(), people), strconv.FormatFloat(time.Duration(p.GetCpuNs()).Seconds(), 'f', 3, 64))
		if asked.GetStepNs() > 0 {
			row = append(row, coresCell(time.Duration(p.GetCpuNs()), lasts))
		}
		row = append(row, strconv.FormatInt(p.GetN(), 10), strconv.Itoa(int(p.GetWindows())), percent(p.GetShare().GetValue()), bounds(p.GetShare()), serviceBounds(p.GetService()))
		if asked.GetPooled() {
			row = append(row, pooledRow(p.GetPooled())...)
		}
		rows = append(rows, row)
	}
	return rows
}

func partHead(asked *atysv1.SplitRequest) (head []string) {
	if asked.GetStepNs() > 0 {
		head = append(head, "START", "LASTS")
	}
	if asked.GetBy() != "" {
		head = append(head, strings.ToUpper(asked.GetBy()))
	}
	head = append(head, "VALUE", "CPU SECONDS")
	if asked.GetStepNs() > 0 {
		head = append(head, "CORES")
	}
	share := "SHARE OF ALL"
	if asked.GetFunction() != "" {
		share = "SHARE OF THE ROW"
	}
	head = append(head, "SAMPLES", "WINDOWS", share, "95% OF THIS", "95% OF SERVICE")
	if asked.GetPooled() {
		head = append(head, "POOLED", "95% OF THAT", "STRETCH", "FINAL")
	}
	return head
}

// newestOf is until when something has come of what is asked about, in nanoseconds
// since 1970; 0: nobody says.
func newestOf(c *atysv1.Coverage) (newest int64) {
	for _, n := range c.GetNodes() {
		newest = max(newest, n.GetLastUnixNano())
	}
	return newest
}

// stepLasts is how long a step is as far as it was asked for, and has come.
func stepLasts(p *atysv1.Part, asked *atysv1.SplitRequest, known int64) time.Duration {
	step := asked.GetStepNs()
	if step <= 0 {
		return 0
	}
	from := max(p.GetStartUnixNano(), asked.GetSelection().GetFromUnixNano())
	to := min(p.GetStartUnixNano()+step, asked.GetSelection().GetToUnixNano())
	if known > from {
		to = min(to, known)
	}
	return time.Duration(max(to-from, 0))
}

func lastsCell(lasts, step time.Duration) string {
	if lasts >= step {
		return step.String()
	}
	return fmt.Sprintf("%v of %v", lasts.Round(min(time.Second, step)), step)
}

// coresCell is how many CPUs were used in a step, all the time.
func coresCell(used, lasts time.Duration) string {
	if lasts <= 0 {
		return "-"
	}
	return strconv.FormatFloat(used.Seconds()/lasts.Seconds(), 'f', 2, 64)
}

// valueCell is what was measured: of CPU time nanoseconds, of events their number.
func valueCell(v int64, kind string, people bool) string {
	switch {
	case !people:
		return strconv.FormatInt(v, 10)
	case kind == "" || kind == "cpu" || strings.HasSuffix(kind, "-clock"):
		return render.Value(float64(v), "nanoseconds")
	}
	return render.Value(float64(v), "count")
}

// pooledRow is a step by what all steps of its stretch say.
func pooledRow(p *atysv1.Pooled) []string {
	if p == nil {
		return []string{"-", "-", "-", "-"}
	}
	final := "not yet"
	if p.GetFinal() {
		final = "yes"
	}
	return []string{percent(p.GetShare().GetValue()), bounds(p.GetShare()), strconv.Itoa(int(p.GetStretch()) + 1), final}
}
