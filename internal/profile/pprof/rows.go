package pprof

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"atys.dev/atys/internal/profile"
)

// Two hidden notes keep what samples have no place for. They refer to samples by number:
//
//	atys.peer      the stack of a peer, and the samples that have it
//	atys.variance  the variances of a value type after the first, one for each sample

// rowNotes lists these notes.
func (e *encoder) rowNotes() (out []string) {
	peers := map[profile.PeerID][]string{}
	for i, id := range e.win.Rows.Peer {
		if id != 0 {
			peers[id] = append(peers[id], strconv.Itoa(i))
		}
	}
	for i, row := range e.apart {
		if e.win.Rows.Peer != nil && e.win.Rows.Peer[row] != 0 {
			id := e.win.Rows.Peer[row]
			peers[id] = append(peers[id], strconv.Itoa(e.win.Rows.Len()+i))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		stack := e.win.Stacks[id-1]
		var locations []string
		for _, l := range stack.Locations {
			locations = append(locations, strconv.FormatUint(e.locations[l].ID, 10))
		}
		n := newNote("peer").text("end", stack.End.String()).text("locations", strings.Join(locations, ","))
		out = append(out, n.text("samples", strings.Join(peers[id], ",")).b.String())
	}
	for t := 1; t < e.win.Rows.Types; t++ {
		values, some := make([]string, e.win.Rows.Len()), false
		for i := range values {
			variance := e.win.Rows.Squares[i*e.win.Rows.Types+t]
			values[i], some = strconv.FormatFloat(variance, 'g', -1, 64), some || variance != 0
		}
		if some {
			out = append(out, newNote("variance").number("type", int64(t)).text("values", strings.Join(values, ",")).b.String())
		}
	}
	return out
}

// completeRows sets the peers and variances of rows from notes. The rows are those of the
// profile's samples, in their order.
func (d *decoder) completeRows(rows []profile.Row) error {
	byID := map[uint64][]profile.LocationID{}
	for l, ids := range d.locations {
		byID[l.ID] = ids
	}
	for _, f := range d.notes.peers {
		var stack []profile.LocationID
		for id := range numbersOf(f["locations"]) {
			stack = append(stack, byID[id]...)
		}
		if len(stack) > maxFrames {
			return fmt.Errorf("a peer of %d frames: more than %d", len(stack), maxFrames)
		}
		peer := profile.PeerID(d.b.Stack(stack, profile.ParseEnd(f["end"]))) + 1
		for i := range numbersOf(f["samples"]) {
			if i < uint64(len(rows)) {
				rows[i].Peer = peer
			}
		}
	}
	for _, f := range d.notes.variances {
		t := f.number("type")
		if t < 1 || t >= int64(len(d.columns.types)) {
			continue
		}
		i := 0
		for text := range strings.SplitSeq(f["values"], ",") {
			variance, err := strconv.ParseFloat(text, 64)
			if i == len(rows) || err != nil || !(variance >= 0) {
				break
			}
			for int64(len(rows[i].Squares)) <= t {
				rows[i].Squares = append(rows[i].Squares, 0)
			}
			rows[i].Squares[t] = variance
			i++
		}
	}
	return nil
}

// numbersOf yields the numbers of a list, up to the first that is none.
func numbersOf(list string) func(yield func(uint64) bool) {
	return func(yield func(uint64) bool) {
		for text := range strings.SplitSeq(list, ",") {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil || !yield(n) {
				return
			}
		}
	}
}
