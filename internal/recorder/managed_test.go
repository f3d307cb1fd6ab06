package recorder

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"atys.dev/atys/internal/lang/dotnet"
	"atys.dev/atys/internal/profile"
)

// asked is a managed that asks a function in place of a runtime.
func asked(t *testing.T, answer func(n int) (dotnet.Methods, error)) (m *managed, questions *int) {
	t.Helper()
	m, questions = newManaged(slog.New(slog.DiscardHandler)), new(int)
	m.ask = func(context.Context, int) (dotnet.Methods, error) {
		*questions++
		return answer(*questions)
	}
	m.age = func(int) time.Duration { return time.Hour }
	t.Cleanup(m.close)
	return m, questions
}

// windowOf is a window of one sample for each address of a process.
func windowOf(m *managed, pid int, addresses ...uint64) *profile.Window {
	b := profile.NewBuilder(profile.Head{Types: []profile.ValueType{profile.CPUTime(0)}})
	for _, address := range addresses {
		id := b.Location(m.location(pid, address))
		b.Add(profile.Row{Stack: b.Stack([]profile.LocationID{id}, profile.EndComplete), N: 1, Values: []int64{1}, Squares: []float64{1}})
	}
	return b.Window()
}

// leaves counts samples by the name of their leaf.
func leaves(w *profile.Window) map[string]int64 {
	counts := map[string]int64{}
	for _, row := range w.Rows.All() {
		counts[w.Locations[w.Stacks[row.Stack].Locations[0]].Name] += row.N
	}
	return counts
}

// TestManagedNames asserts that code gets the names told before and after it
// was seen, and that what has none is one place.
func TestManagedNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, questions := asked(t, func(n int) (dotnet.Methods, error) {
			methods := []dotnet.Method{{Start: 0x1000, End: 0x1010, Name: "A.first"}}
			if n > 1 {
				methods = append(methods, dotnet.Method{Start: 0x2000, End: 0x2010, Name: "A.second"})
			}
			return dotnet.NewMethods(methods), nil
		})
		m.meet(os.Getpid())
		synctest.Wait()
		w := windowOf(m, os.Getpid(), 0x1000, 0x1008, 0x2000, 0x3000)
		m.name(w)
		synctest.Wait()
		if *questions != 1 {
			t.Errorf("%d questions within 10 s", *questions)
		}
		m.settle()
		w, err := m.finish(w)
		if err != nil {
			t.Fatal(err)
		}
		got := leaves(w)
		if len(got) != 3 || got["A.first"] != 2 || got["A.second"] != 1 || got[codeMade.Name] != 1 || w.Rows.Len() != 3 {
			t.Errorf("got %v in %d rows", got, w.Rows.Len())
		}
		if *questions != 2 {
			t.Errorf("%d questions, want one at the beginning and one at the end", *questions)
		}
	})
}

// TestManagedAsksSeldom asserts that a process whose answers bring nothing new
// is asked less and less.
func TestManagedAsksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, questions := asked(t, func(int) (dotnet.Methods, error) { return dotnet.Methods{}, errors.New("silent") })
		m.meet(os.Getpid())
		for range 600 {
			time.Sleep(time.Second)
			m.name(windowOf(m, os.Getpid(), 0x1000))
			synctest.Wait()
		}
		if *questions < 3 || *questions > 8 {
			t.Errorf("%d questions in 10 minutes", *questions)
		}
	})
}
