package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/bench/harness"
	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// relayed is how many instances' windows a relay of the table joins.
const relayed = 50

// measureVolume says what ten seconds of one busy core take in several forms.
func measureVolume() error {
	harness.Header()
	table := &harness.Table{}
	table.Row("frequency", "samples", "rows", "text, a line a sample", "16 bytes a sample", "a window, all explained", "a window", "a window of "+fmt.Sprint(relayed)+" that a relay joins", "saved against text / binary")
	for _, hz := range []int{19, 99, 10_000} {
		v, err := volumeOf(hz)
		if err != nil {
			return err
		}
		saved := func(of int) string { return fmt.Sprintf("%.2f%%", 100*(1-float64(v.window)/float64(of))) }
		table.Row(fmt.Sprintf("%d Hz", hz), fmt.Sprint(v.samples), fmt.Sprint(v.rows), bytesOf(v.text), bytesOf(16*v.samples), bytesOf(v.explained), bytesOf(v.window), bytesOf(v.relayed),
			saved(v.text)+" / "+saved(16*v.samples))
	}
	return table.Print()
}

func bytesOf(n int) string { return fmt.Sprintf("%.3g kB", float64(n)/1000) }

// forms is how many bytes one window takes, as it goes over the wire.
type forms struct{ samples, rows, text, explained, window, relayed int }

func volumeOf(hz int) (v forms, err error) {
	r := rand.New(rand.NewPCG(uint64(hz), 1))
	t := newTree(r)
	v.samples = hz * int(windowLength/time.Second)
	known := func(profile.Hash) bool { return true }
	all := wire.NewBatch(known)
	for i := range relayed {
		w := t.window(r, "0123456789abcdef", ofSamples(v.samples))
		w.Target["instance"] = fmt.Sprint(i)
		s := wire.Seal(w, profile.Run{byte(i)})
		if err := all.Add(s); err != nil {
			return v, err
		}
		if i > 0 {
			continue
		}
		v.rows, v.text = w.Rows.Len(), textSize(w)
		if v.window, err = sizeOfRequest(s, known); err != nil {
			return v, err
		}
		if v.explained, err = sizeOfRequest(s, func(profile.Hash) bool { return false }); err != nil {
			return v, err
		}
	}
	joined, err := wireSize(all.Request())
	v.relayed = joined / relayed
	return v, err
}

func sizeOfRequest(s *atysv1.Spooled, known func(profile.Hash) bool) (int, error) {
	b := wire.NewBatch(known)
	if err := b.Add(s); err != nil {
		return 0, err
	}
	return wireSize(b.Request())
}

func wireSize(r *atysv1.PushRequest) (int, error) {
	plain, err := proto.Marshal(r)
	return len(compressed(plain)), err
}

// textSize is what samples take as stackcollapse writes them, one a line.
func textSize(w *profile.Window) (size int) {
	for _, row := range w.Rows.All() {
		line := len(" 1\n") - len(";")
		for _, l := range w.Stacks[row.Stack].Locations {
			line += len(w.Names[l][0].Function) + len(";")
		}
		size += int(row.N) * line
	}
	return size
}
