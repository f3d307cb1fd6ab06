package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"atys.dev/atys/internal/spec"
)

func TestBudget(t *testing.T) {
	for _, c := range []struct {
		cpu, memory string
		cores       float64
		bytes       int64
		bad         bool
	}{
		{cpu: "2%", memory: "256MB", cores: 0.02, bytes: 256e6},
		{cpu: "150 %", memory: "1GiB", cores: 1.5, bytes: 1 << 30},
		{cpu: "0", memory: "0"},
		{cpu: "2", memory: "0", bad: true}, // of a core, or percent?
		{cpu: "-1%", memory: "0", bad: true},
		{cpu: "NaN%", memory: "0", bad: true},
		{cpu: "2%", memory: "256", bad: true},
		{cpu: "2%", memory: "-1GB", bad: true},
		{cpu: "2%", memory: "12MB", bad: true},
		{cpu: "2%", memory: "1e30GB", bad: true},
		{},
		{cpu: " ", memory: "0", bad: true},
	} {
		b, err := (&budgetFlags{cpu: c.cpu, memory: c.memory}).budget()
		if (err != nil) != c.bad {
			t.Errorf("%q, %q: %v", c.cpu, c.memory, err)
		}
		if err == nil && (b.Cores != c.cores || b.Memory != c.bytes) {
			t.Errorf("%q, %q: %+v", c.cpu, c.memory, b)
		}
	}
}

// TestUnitHasRoom holds the agent's unit against what an agent keeps within where
// nobody says otherwise.
func TestUnitHasRoom(t *testing.T) {
	unit, err := os.ReadFile("../../deploy/systemd/atys-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	if said := "keeps within " + defaultMemory + " itself"; !strings.Contains(string(unit), said) {
		t.Errorf("the unit does not say that an agent %s", said)
	}
	budget, err := spec.ParseBytes(defaultMemory)
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"MemoryHigh=", "MemoryMax="} {
		_, rest, found := strings.Cut(string(unit), "\n"+setting)
		value, _, _ := strings.Cut(rest, "\n")
		megabytes, err := strconv.ParseInt(strings.TrimSuffix(value, "M"), 10, 64)
		if !found || err != nil || megabytes<<20 <= budget {
			t.Errorf("%s%s: want more than %s: %v", setting, value, defaultMemory, err)
		}
	}
}
