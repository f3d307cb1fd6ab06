package proc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCPUTimes(t *testing.T) {
	text := "cpu  9 0 0 0 0 0 0 0 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu3 100 0 0 0 0 0 0 0 0 0\nintr 1 2\nbtime 1763730000\n"
	got, err := ParseCPUTimes([]byte(text))
	const s = 10 * time.Millisecond
	want := []CPUTime{{CPU: 0, User: s, Nice: 2 * s, System: 3 * s, Idle: 4 * s, IOWait: 5 * s, IRQ: 6 * s, SoftIRQ: 7 * s, Steal: 8 * s, Guest: 9 * s}, {CPU: 3, User: time.Second}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "cpu 1 2 3", "cpu0 x 2 3 4 5 6 7 8 9 10\n", "cpux 1 2 3 4 5 6 7 8 9 10\n", "cpu0 -1 2 3 4 5 6 7 8 9 10\n", "cpu0 9999999999999999999 2 3 4 5 6 7 8 9 10\n"} {
		if got, err := ParseCPUTimes([]byte(text)); err == nil {
			t.Errorf("%q parsed: %+v", text, got)
		}
	}
	times, err := Machine{}.CPUTimes()
	online, err2 := Machine{}.OnlineCPUs()
	if err != nil || err2 != nil || len(times) != len(online) {
		t.Errorf("%d CPUs in stat, %v online: %v, %v", len(times), online, err, err2)
	}
}

func TestParseCPUList(t *testing.T) {
	tests := map[string][]int{"0\n": {0}, "0-3\n": {0, 1, 2, 3}, "0,2-3,8": {0, 2, 3, 8}}
	for text, want := range tests {
		if got, err := ParseCPUList([]byte(text)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "\n", "a", "1-", "-1", "3-1", "0-99999", "0-8192", "1,1", "2,0-1", "0,,1", "0-4000000000"} {
		if got, err := ParseCPUList([]byte(text)); err == nil {
			t.Errorf("%q parsed: %v", text, got)
		}
	}
}

func FuzzParseCPUList(f *testing.F) {
	f.Add([]byte("0-3,8\n"))
	f.Add([]byte("0-8191"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = ParseCPUTimes(data)
		_, _ = ParseSchedStat(data)
		cpus, err := ParseCPUList(data)
		if err != nil {
			return
		}
		if len(cpus) == 0 || len(cpus) > maxCPUs || !slices.IsSorted(cpus) {
			t.Fatalf("%d CPUs", len(cpus))
		}
		text := strings.Trim(strings.ReplaceAll(fmt.Sprint(cpus), " ", ","), "[]")
		again, err := ParseCPUList([]byte(text))
		if err != nil || !slices.Equal(cpus, again) {
			t.Fatalf("%v written and read again: %v, %v", cpus, again, err)
		}
	})
}
