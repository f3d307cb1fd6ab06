package cost

import (
	"runtime"
	"testing"
	"time"
)

// TestGarbage charges for bytes that are allocated, and has nothing collected meanwhile.
func TestGarbage(t *testing.T) {
	const each, bytes = time.Microsecond, 50 << 20
	defer letGarbageBe()()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	watch, err := newStopwatch(garbage(each))
	if err != nil {
		t.Fatal(err)
	}
	kept = make([]byte, bytes)
	d, err := watch.lap()
	kept = nil
	if err != nil || d < bytes*each || d > bytes*each*11/10 {
		t.Errorf("%d bytes are charged %v, %v", bytes, d, err)
	}
	for range 20 {
		kept = make([]byte, bytes)
	}
	kept = nil
	if runtime.ReadMemStats(&after); after.NumGC != before.NumGC {
		t.Errorf("garbage was collected %d times", after.NumGC-before.NumGC)
	}
	if g, err := weighGarbage(); err != nil || g != 0 {
		t.Errorf("where none is collected it costs %g, %v", g, err)
	}
}

func TestWeighGarbage(t *testing.T) {
	if g, err := weighGarbage(); err != nil || g <= 0 {
		t.Errorf("garbage costs %g, %v", g, err)
	}
}

var kept []byte
