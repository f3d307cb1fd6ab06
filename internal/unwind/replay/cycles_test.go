package replay

import (
	"bytes"
	"encoding/binary"
	"testing"

	"atys.dev/atys/internal/lang/python"
	"atys.dev/atys/internal/unwind"
)

// TestPythonCycles makes each frame its own caller, and code objects into what
// the walk takes for no function: it must end within bounds, and not pass for
// whole.
func TestPythonCycles(t *testing.T) {
	m := machine(t)
	images(t, func(t *testing.T, _ string, i *Image) {
		if len(i.Runtimes) == 0 || i.Runtimes[0].Language != unwind.Python {
			return
		}
		var p python.Parameters
		if err := binary.Read(bytes.NewReader(i.Runtimes[0].Parameters), binary.LittleEndian, &p); err != nil {
			t.Fatal(err)
		}
		_, before := runsOf(unwind.Python, walked(t, m, i).Frames)
		for _, nameless := range []bool{false, true} {
			most, cycles := 0, 0
			for frame := range i.pointers() {
				hostile := i.changed(nil)
				if !hostile.put(frame+uint64(p.FramePrevious), frame) {
					continue
				}
				if nameless {
					hostile.unname(uint64(p.CodeName), uint64(p.CodeFile), uint64(p.Type), p.CodeType)
				}
				w := walked(t, m, hostile)
				checkWalk(t, hostile, w, unwind.Python)
				most = max(most, w.Reads)
				if _, frames := runsOf(unwind.Python, w.Frames); frames > before {
					cycles++
				}
			}
			t.Logf("nameless %v: %d cycles, at most %d reads", nameless, cycles, most)
			const entries = 1 // of enum activation: up to there each native frame has one of Python, and a cycle is not longer
			if cycles == 0 && !nameless && p.Activation > entries {
				t.Error("no cycle was met")
			}
		}
	})
}

// pointers are the addresses in an image's memory that lie in it.
func (i *Image) pointers() map[uint64]bool {
	found := map[uint64]bool{}
	for _, p := range i.Memory {
		for at := 0; at+8 <= len(p.Bytes); at += 8 {
			if value := binary.LittleEndian.Uint64(p.Bytes[at:]); i.at(value) != nil {
				found[value] = true
			}
		}
	}
	return found
}

// at is the word at an address; nil: it is not in the image.
func (i *Image) at(address uint64) []byte {
	for _, p := range i.Memory {
		if at := address - p.Start; len(p.Bytes) >= 8 && at <= uint64(len(p.Bytes)-8) {
			return p.Bytes[at:][:8]
		}
	}
	return nil
}

func (i *Image) put(address, value uint64) bool {
	word := i.at(address)
	if word == nil {
		return false
	}
	binary.LittleEndian.PutUint64(word, value)
	return true
}

// unname gives all objects of a type the same word at two places.
func (i *Image) unname(name, file, kind, wanted uint64) {
	for object := range i.pointers() {
		if of := i.at(object + kind); of == nil || binary.LittleEndian.Uint64(of) != wanted {
			continue
		}
		if from, to := i.at(object+file), i.at(object+name); from != nil && to != nil {
			copy(to, from)
		}
	}
}
