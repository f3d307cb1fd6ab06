package spool

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestLossesOutliveTheProcess drops, damages and refuses windows over several lives.
func TestLossesOutliveTheProcess(t *testing.T) {
	dir := t.TempDir()
	one := int64(len(encode([][]byte{make([]byte, 100)})))
	s := open(t, dir, 2*one)
	again := func() {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, 2*one)
	}
	check := func(want Losses) {
		t.Helper()
		for range 2 {
			if got := s.Stats().Losses; got != want {
				t.Errorf("lost %+v, want %+v", got, want)
			}
			again()
		}
	}
	for range 3 {
		add(t, s, string(make([]byte, 100)))
	}
	check(Losses{Dropped: 1})
	oldest := s.Oldest(2)
	path := filepath.Join(dir, bundle{id: oldest[0], records: 1}.name())
	if err := os.WriteFile(path, bytes.Repeat([]byte{1}, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // and is counted once, though it is read in two lives
		if records, _ := s.Read(oldest[0]); len(records) > 0 {
			t.Fatalf("%d records of a damaged bundle", len(records))
		}
		check(Losses{Dropped: 1, Damaged: 1})
	}
	if err := errors.Join(s.Done(oldest[0]), s.DoneBut(oldest[1], Losses{Refused: 1}, nil)); err != nil {
		t.Fatal(err)
	}
	s.Lose(Losses{Unkept: 2})
	check(Losses{Dropped: 1, Damaged: 1, Refused: 1, Unkept: 2})
}

// TestLedgerLost has a loss of power leave nothing of the ledger.
func TestLedgerLost(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 1<<20)
	add(t, s, "kept")
	s.Lose(Losses{Unkept: 1})
	if err := errors.Join(s.Close(), os.WriteFile(filepath.Join(dir, ledgerName), make([]byte, 50), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := drain(t, open(t, dir, 1<<20)); len(got) != 1 {
		t.Errorf("served %q", got)
	}
}

// account is a spool whose windows tell losses, and what a receiver heard of
// them: of a window that comes twice once.
type account struct {
	t     *testing.T
	r     *rand.Rand
	dir   string
	spool *Spool
	cut   int
	heard map[int]int // what windows say that was lost
	sent  ID          // the last bundle that may have been taken
}

const (
	accountLimit = 600 // bytes: seven bundles
	refusedBelow = 150
)

// add adds a bundle of three windows, of which one may tell losses.
func (a *account) add() {
	var records [][]byte
	for range 3 {
		records = append(records, fmt.Appendf(nil, "%6d lost %4d", a.cut, 0))
		a.cut++
	}
	lost := a.spool.Untold()
	if lost == (Losses{}) {
		if _, err := a.spool.Add(records); err != nil {
			a.t.Fatal(err)
		}
		return
	}
	teller := a.r.IntN(3)
	records[teller] = fmt.Appendf(nil, "%6d lost %4d", a.cut-3+teller, lost.Dropped+lost.Damaged+lost.Refused)
	if _, err := a.spool.AddTelling(records, teller, lost); err != nil {
		a.t.Fatal(err)
	}
}

// ship takes the oldest bundle, but for every seventh window, which is refused for good.
func (a *account) ship() {
	oldest := a.spool.Oldest(1)
	if len(oldest) == 0 {
		return
	}
	records, err := a.spool.Read(oldest[0])
	var damaged *DamagedError
	if err != nil && !errors.As(err, &damaged) {
		a.t.Fatal(err)
	}
	a.sent = oldest[0]
	var lost Losses
	var refused [][]byte
	for _, record := range records {
		var number, told int
		if _, err := fmt.Sscanf(string(record), "%d lost %d", &number, &told); err != nil {
			a.t.Fatal(err)
		}
		if number%7 == 0 && number < refusedBelow {
			lost.Refused, refused = lost.Refused+1, append(refused, record)
			continue
		}
		a.heard[number] = told
	}
	if a.r.IntN(4) == 0 { // the answer is lost: it comes again
		a.spool.Release(nil, Losses{})
		return
	}
	if err := a.spool.DoneBut(oldest[0], lost, refused); err != nil {
		a.t.Fatal(err)
	}
}

// damage breaks a record of a bundle that waits.
func (a *account) damage() {
	waiting := a.spool.Oldest(100)
	if len(waiting) == 0 {
		return
	}
	broken := waiting[a.r.IntN(len(waiting))]
	if broken <= a.sent { // what it tells may have been heard: nobody could know
		return
	}
	path := filepath.Join(a.dir, bundle{id: broken, records: 3}.name())
	data, err := os.ReadFile(path)
	if err != nil {
		a.t.Fatal(err)
	}
	data[len(data)-1-a.r.IntN(len(data)-len(magic))] ^= 0x40
	if err := os.WriteFile(path, data, 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// restart begins another life.
func (a *account) restart() {
	if err := a.spool.Close(); err != nil {
		a.t.Fatal(err)
	}
	a.spool = open(a.t, a.dir, accountLimit)
}

// TestToldOnce does to a spool what happens to one, at random: in the end each
// window was heard, or one that was heard tells that it was lost, once.
func TestToldOnce(t *testing.T) {
	for seed := range uint64(12) {
		a := &account{t: t, r: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(), heard: map[int]int{}}
		a.spool = open(t, a.dir, accountLimit)
		for range 150 {
			switch a.r.IntN(8) {
			case 0, 1, 2:
				a.add()
			case 3, 4:
				a.ship()
			case 5:
				a.damage()
			case 6:
				a.restart()
			}
		}
		for i := 0; i < 1000 && (a.spool.Stats().Records > 0 || a.spool.Untold() != (Losses{})); i++ {
			if a.ship(); a.spool.Untold() != (Losses{}) {
				a.add()
			}
		}
		told := 0
		for _, n := range a.heard {
			told += n
		}
		lost := a.spool.Stats().Losses
		if want := lost.Dropped + lost.Damaged + lost.Refused; told != want || len(a.heard)+want < a.cut {
			t.Fatalf("seed %d: of %d windows %d were heard, %d counted as lost (%+v), and %d told", seed, a.cut, len(a.heard), want, lost, told)
		}
	}
}

// TestTold has bundles that tell losses fail, be dropped, shipped and in the way.
func TestTold(t *testing.T) {
	record := func(n int) [][]byte { return [][]byte{fmt.Appendf(nil, "%0100d", n)} }
	s := open(t, t.TempDir(), 3*int64(len(encode(record(0)))))
	untold := func(want int) {
		t.Helper()
		if got := s.Untold(); got != (Losses{Dropped: want}) {
			t.Errorf("%+v are untold, want %d dropped", got, want)
		}
	}
	s.Lose(Losses{Dropped: 4})
	if _, err := s.AddTelling([][]byte{make([]byte, 1000)}, 0, s.Untold()); err == nil {
		t.Error("more than the whole spool was taken")
	}
	untold(4)
	first, err := s.AddTelling(record(1), 0, s.Untold())
	if err != nil {
		t.Fatal(err)
	}
	untold(0)
	var others []ID
	for i := range 4 { // the second of them and all later ones take the place of another
		others = append(others, add(t, s, string(record(2 + i)[0])))
	}
	if got := s.Oldest(9); len(got) != 3 || got[0] != first || got[1] != others[2] {
		t.Errorf("left are %v of %d, which tells what was lost, and %v", got, first, others)
	}
	if _, err := s.Read(others[2]); err != nil {
		t.Fatal(err)
	}
	add(t, s, string(record(6)[0]))                               // nothing is dropped that is being shipped
	if _, err := s.Add([][]byte{make([]byte, 216)}); err != nil { // nor is what tells losses, if there is another way
		t.Fatal(err)
	}
	if got := s.Oldest(9); len(got) != 2 || got[0] != others[2] {
		t.Errorf("left are %v, and %d is being shipped", got, others[2])
	}
	if got := s.Stats().Losses; got != (Losses{Dropped: 4 + 2 + 1 + 2}) {
		t.Errorf("%+v are lost", got)
	}
	untold(9)
}

// TestTriedIsDroppedLast has a bundle be tried whose answer is lost: the receiver may
// have it, so that others make room first, and what is known to be there is not lost.
func TestTriedIsDroppedLast(t *testing.T) {
	one := func(n int) []byte { return fmt.Appendf(nil, "%030d", n) }
	three := func(n int) [][]byte { return [][]byte{one(n), one(n + 1), one(n + 2)} }
	bundleBytes := int64(len(encode(three(0))))
	s := open(t, t.TempDir(), 3*bundleBytes)
	var ids []ID
	keep := func(records [][]byte) {
		t.Helper()
		id, err := s.Add(records)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	check := func(lost Losses, left ...ID) {
		t.Helper()
		if got := s.Stats().Losses; got != lost || !slices.Equal(s.Oldest(9), left) {
			t.Errorf("lost %+v, left %v; want %+v and %v", got, s.Oldest(9), lost, left)
		}
	}
	s.Lose(Losses{Unkept: 1})
	id, err := s.AddTelling(three(0), 1, s.Untold())
	if err != nil {
		t.Fatal(err)
	}
	ids = append(ids, id)
	keep(three(3))
	records, err := s.Read(id)
	if err != nil {
		t.Fatal(err)
	}
	s.Release(records[:2], Losses{}) // it was told what was lost
	keep(three(6))
	keep(three(9))
	check(Losses{Unkept: 1, Dropped: 3}, ids[0], ids[2], ids[3])
	keep([][]byte{make([]byte, 3*bundleBytes-int64(len(encode([][]byte{nil}))))}) // all make room
	check(Losses{Unkept: 1, Dropped: 3 + 6 + 1}, ids[4])
	if got := s.Untold(); got != (Losses{Dropped: 10}) {
		t.Errorf("%+v are untold", got)
	}
	if err := s.Done(ids[4]); err != nil {
		t.Fatal(err)
	}
	keep(three(12))
	if _, err := s.Read(ids[5]); err != nil {
		t.Fatal(err)
	}
	s.Release(nil, Losses{Refused: 1})
	keep([][]byte{make([]byte, 3*bundleBytes-int64(len(encode([][]byte{nil}))))})
	check(Losses{Unkept: 1, Dropped: 10 + 2, Refused: 1}, ids[6])
}

// TestCrash ends the process at each write of the ledger and each removal of a
// file: what is found is what was before, or after.
func TestCrash(t *testing.T) {
	for _, at := range []string{"ledger", "bundle", "removal"} {
		dir := t.TempDir()
		s := open(t, dir, 1<<20)
		s.Lose(Losses{Dropped: 5})
		before, err := os.ReadFile(filepath.Join(dir, ledgerName))
		if err != nil {
			t.Fatal(err)
		}
		id, err := s.AddTelling([][]byte{[]byte("lost 5")}, 0, s.Untold())
		if err != nil || s.Untold() != (Losses{}) {
			t.Fatalf("%v, %+v are untold", err, s.Untold())
		}
		path := filepath.Join(dir, bundle{id: id, records: 1}.name())
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		told := false
		switch at {
		case "ledger": // nothing was written yet
			err = errors.Join(os.Remove(path), os.WriteFile(filepath.Join(dir, ledgerName), before, 0o600))
		case "bundle": // the ledger was, and the bundle not
			err = os.Remove(path)
		case "removal": // it was taken, and the file is still there
			err = errors.Join(s.Done(id), os.WriteFile(path, data, 0o600))
			told = true
		}
		if err = errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir, 1<<20)
		if got, want := s.Untold(), (Losses{Dropped: 5}); told != (got == Losses{}) || !told && got != want {
			t.Errorf("crashed before the %s: %+v are untold", at, got)
		}
		if got := s.Stats(); got.Records != 0 || got.Dropped != 5 {
			t.Errorf("crashed before the %s: %+v", at, got)
		}
	}
}
