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
	for i, s := range b.shapes[:4] {
		explained := i%2 == 1
		z, err := gzip.NewReader(bytes.NewReader(s.packed.request(head, explained, run, start)))
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
		want := s.of(series, run, start)
		if explained {
			want.Dictionary = s.sealed.GetDictionary()
		}
		if !proto.Equal(got, want) {
			t.Errorf("requests differ:\n%.300v\n%.300v", got, want)
		}
	}
}
