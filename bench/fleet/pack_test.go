package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"atys.dev/atys/internal/profile"
	"atys.dev/atys/internal/wire"
	"atys.dev/atys/internal/wire/atysv1"
)

// TestPackedIsWhatAgentsSend holds requests that are put together against those
// that agents make.
func TestPackedIsWhatAgentsSend(t *testing.T) {
	b, err := newBuild(rand.New(rand.NewPCG(1, 1)), "0123")
	if err != nil {
		t.Fatal(err)
	}
	series := &atysv1.Series{Labels: map[string]string{"service": "shop", "instance": "web-1"}}
	head, err := packSeries(series)
	if err != nil {
		t.Fatal(err)
	}
	run, start := profile.Run{7}, time.Unix(1_700_000_000, 0)
	for _, s := range b.shapes[:3] {
		z, err := gzip.NewReader(bytes.NewReader(s.packed.request(head, run, start)))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		got := &atysv1.PushRequest{}
		if err := proto.Unmarshal(plain, got); err != nil {
			t.Fatal(err)
		}
		batch := wire.NewBatch(func(profile.Hash) bool { return true })
		if err := batch.Add(s.of(series, run, start)); err != nil {
			t.Fatal(err)
		}
		if want := batch.Request(); !proto.Equal(got, want) {
			t.Errorf("requests differ:\n%.300v\n%.300v", got, want)
		}
	}
}
