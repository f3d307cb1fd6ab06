package main

import (
	"slices"
	"testing"
)

func TestFigures(t *testing.T) {
	got := figures(`go run ./bench/inside -rounds 1
2026-11-28, 2 CPUs, load 3

| victim | frames | median time in BPF |
| ---    | ---    | --- |
| burn25 | 25.0   | 4.6 us (4.6 to 4.7) |
| deep   |        | 1.61e+01us |
| all    | 0.867% of a core (0.8 to 0.9) | as before |

| what | bytes |
| --- | --- |
| a window | 1,832 |
`)
	want := []measured{
		{figure{"burn25", "frames", ""}, 25}, {figure{"burn25", "median time in BPF", "us"}, 4.6}, {figure{"deep", "median time in BPF", "us"}, 16.1},
		{figure{"all", "frames", "% of a core"}, 0.867}, {figure{"a window", "bytes", ""}, 1832},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
